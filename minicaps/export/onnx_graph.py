"""Builder of ONNX graphs in float32.

In the graphs of `minicaps.export`, each function adds the nodes that compute what the function or
layer of the same name in minicaps computes. Values are referred to by name, as in ONNX, and B is
the size of the batch, which may vary.
"""

import numpy as np
import onnx
from onnx import helper

OPSET, FORMAT = 18, 8  # operators and file format of ONNX 1.13, which later runtimes also read


class Graph:
    """ONNX graph under construction. Values are referred to by name, as in ONNX."""

    def __init__(self):
        self.nodes, self.constants = [], []

    def add(self, operator, *inputs, output=None, **attributes):
        """Add a node and return the name of its output.

        inputs: names of values, or constants: arrays, numbers or lists, stored as float32 or int64.
        output: name of the output, or None to make one up.
        """
        names = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        output = output or f"{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, names, [output], **attributes))
        return output

    def constant(self, value):
        """Store a constant and return its name."""
        kind, name = np.asarray(value).dtype.kind, f"constant_{len(self.constants)}"
        array = np.array(value, np.int64 if kind == "i" else np.float32, order="C")
        self.constants.append(onnx.numpy_helper.from_array(array, name))
        return name

    def model(self, inputs, outputs):
        """Return the finished graph as an `onnx.ModelProto`.

        inputs, outputs: {name: shape}. In a shape, text names a size that may vary.
        """
        declared = (
            [
                helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
                for name, shape in values.items()
            ]
            for values in (inputs, outputs)
        )
        graph = helper.make_graph(self.nodes, "minicaps", *declared, self.constants)
        opset = helper.make_opsetid("", OPSET)
        return helper.make_model(graph, opset_imports=[opset], ir_version=FORMAT)
