"""CapsNet in ONNX Runtime, float32: the second reference for `minicaps.bench`, for inference."""

import numpy as np
import onnxruntime

from minicaps.errors import UserError
from minicaps.export.onnx_networks import INPUT, network_graph
from minicaps.threads import cores

NAME = "onnxruntime"
TOLERANCE = 1e-5  # of lengths, which are at most 1


def infer(model, images):
    """Return a function that computes the lengths (B, J) of the class capsules for the images.

    model: a minicaps CapsNet, whose weights are copied. The runtime optimizes the graph here.
    """
    options = onnxruntime.SessionOptions()  # by default, with all optimizations
    options.intra_op_num_threads = cores()
    graph = network_graph(model).SerializeToString()
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {INPUT: images})[0]


def check(lengths, expected):
    """Raise UserError if the lengths differ from those of minicaps by more than TOLERANCE."""
    error = np.abs(lengths - expected).max()
    if not error <= TOLERANCE:  # nor NaN
        raise UserError(
            f"ONNX Runtime's lengths differ from those of minicaps by {error:.1e}, but at most"
            f" {TOLERANCE:.0e} was expected: report this with the versions above, or leave onnx out"
        )
