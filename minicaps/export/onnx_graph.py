"""Networks as ONNX graphs in float32, for programs that run them without minicaps.

A graph maps preprocessed images (B, C, H, W), for any B, to the lengths (B, J) of the class
capsules. Its iterations of routing are unrolled.

Notation, as in the paper: I children u_i of N numbers, J parents v_j of D numbers, matrices W_ij.
"""

import numpy as np
import onnx
from onnx import helper

from minicaps.backend import to_host
from minicaps.models.capsnet import CapsNet
from minicaps.routing import agreement
from minicaps.routing.routed import RoutingOptions

OPSET, FORMAT = 18, 8  # operators and file format of ONNX 1.13, which later runtimes also read
# The routing options that a graph follows; the gradient does not affect the values
FOLLOWED, FIXED = {"iterations", "gradient"}, vars(RoutingOptions()) | {"orphans": False}


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


def capsnet_graph(model):
    """Return a CapsNet as an `onnx.ModelProto` that maps `images` to `lengths`.

    Raises ValueError for other networks, and for a routing or a squash other than the paper's.
    """
    iterations = _check(model)
    graph, x = Graph(), "images"
    for layer in model.convolutions:
        x = graph.add("Relu", convolution(graph, x, layer))
    x = convolution(graph, x, model.primary.conv)  # (B, types·N, P, Q)
    weight = to_host(model.classes.weight.data)  # (I, J, N, D)
    i, j, n, _ = weight.shape
    x = graph.add("Transpose", x, perm=[0, 2, 3, 1])
    u = squash(graph, graph.add("Reshape", x, [-1, i, n]), axis=2)
    v = route_by_agreement(graph, u, weight, iterations)
    graph.add("ReduceL2", v, [2], keepdims=0, output="lengths")
    return graph.model({"images": ("B", *model.input_shape)}, {"lengths": ("B", j)})


def _check(model):
    """Return the number of routing iterations; raise ValueError if the graph is not the model's."""
    if not isinstance(model, CapsNet):
        raise ValueError(f"only a CapsNet can be an ONNX graph, not a {type(model).__name__}")
    route = model.classes.routing.route
    found = {k: v for k, v in route.keywords.items() if k not in FOLLOWED and v != FIXED[k]}
    other = route.func is not agreement or found or model.primary.squash != "paper"
    if other or model.shared:
        raise ValueError(
            "only a CapsNet with the paper's routing by agreement and squash can be an ONNX graph,"
            f" not one with {route.func.__name__} routing, options {found}, primary capsules"
            f" with squash {model.primary.squash!r} and {'shared' if model.shared else 'own'}"
            " matrices"
        )
    return route.keywords.get("iterations", RoutingOptions().iterations)


def convolution(graph, x, layer):
    """Add a `minicaps.nn.Conv2d` of x (B, C, H, W)."""
    weight = to_host(layer.weight.data)
    bias = np.zeros(len(weight)) if layer.bias is None else to_host(layer.bias.data)
    side, padding = [layer.stride] * 2, [layer.padding] * 4
    return graph.add("Conv", x, weight, bias, strides=side, pads=padding)


def squash(graph, s, axis):
    """Add v = |s|/(1+|s|²) s, the paper's squash along an axis; the zero vector stays zero."""
    n = graph.add("ReduceL2", s, [axis])
    n_squared = graph.add("Mul", n, n)
    return graph.add("Mul", s, graph.add("Div", n, graph.add("Add", n_squared, 1.0)))


def route_by_agreement(graph, u, weight, iterations):
    """Add dense votes of u (B, I, N) and their routing; return the poses (B, J, D).

    weight: W (I, J, N, D).
    """
    i, j, n, d = weight.shape
    by_child = graph.constant(weight.transpose(0, 2, 1, 3).reshape(i, n, j * d))
    # s_j = Σ_i u_i W_ij / J, as all couplings are 1/J at first: one product without votes
    total = graph.add("Reshape", by_child, [i * n, j * d])
    s = graph.add("MatMul", graph.add("Reshape", u, [-1, i * n]), total)
    v = squash(graph, graph.add("Reshape", graph.add("Div", s, float(j)), [-1, j, d]), axis=2)
    if iterations == 1:
        return v

    # û_j|i = u_i W_ij, (B, J, I, D)
    votes = graph.add("MatMul", graph.add("Transpose", u, perm=[1, 0, 2]), by_child)
    votes = graph.add("Transpose", graph.add("Reshape", votes, [i, -1, j, d]), perm=[1, 2, 0, 3])
    b = None
    for _ in range(iterations - 1):
        # b_ij ← b_ij + ⟨û_j|i, v_j⟩, (B, J, I)
        agreed = graph.add("MatMul", votes, graph.add("Unsqueeze", v, [3]))
        agreed = graph.add("Squeeze", agreed, [3])
        b = agreed if b is None else graph.add("Add", b, agreed)
        # c_ij = softmax_j(b_ij), s_j = Σ_i c_ij û_j|i, (B, J, D)
        c = graph.add("Unsqueeze", graph.add("Softmax", b, axis=1), [2])
        v = squash(graph, graph.add("Squeeze", graph.add("MatMul", c, votes), [2]), axis=2)
    return v
