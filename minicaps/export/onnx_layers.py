"""The layers of `minicaps.nn` in ONNX, in evaluation mode, but for matrix capsules."""

import numpy as np

from minicaps.backend import to_host
from minicaps.export.onnx_ops import squash
from minicaps.export.onnx_routings import Votes, route
from minicaps.nn.layers import EPSILON


def convolution(graph, x, layer):
    """Add a `Conv2d` of x (B, C, H, W)."""
    weight = to_host(layer.weight.data)
    bias = np.zeros(len(weight)) if layer.bias is None else to_host(layer.bias.data)
    side, padding = [layer.stride] * 2, [layer.padding] * 4
    y = graph.add("Conv", x, weight, bias, strides=side, pads=padding)
    return graph.add("Relu", y) if layer.relu else y


def linear(graph, x, layer):
    """Add a `Linear` of x (B, n)."""
    return graph.add("Gemm", x, to_host(layer.weight.data), to_host(layer.bias.data))


def batch_norm(graph, x, layer):
    """Add a `BatchNorm2d` of x (B, C, H, W) with the running statistics."""
    arrays = layer.scale.data, layer.shift.data, layer.mean, layer.variance
    parts = [to_host(array).reshape(-1) for array in arrays]
    return graph.add("BatchNormalization", x, *parts, epsilon=EPSILON)


def primary_capsules(graph, x, layer, children):
    """Add the capsules (B, children, N) of a `PrimaryCaps`."""
    u = group_channels(graph, convolution(graph, x, layer.conv), children, layer.size)
    return squash(graph, u, axis=2, kind=layer.squash)


def group_channels(graph, maps, children, size):
    """Split feature maps (B, C, P, Q) into capsules (B, children, size) of adjacent channels."""
    maps = graph.add("Transpose", maps, perm=[0, 2, 3, 1])
    return graph.add("Reshape", maps, [0, children, size])


def flattened(graph, maps, size):
    """Flatten feature maps (B, C, P, Q) to vectors (B, size), where size = P·Q·C."""
    return graph.add("Reshape", graph.add("Transpose", maps, perm=[0, 2, 3, 1]), [0, size])


def dense_capsules(graph, u, layer):
    """Add the poses (B, J, D) of a `DenseCaps` for the capsules u (B, I, N)."""
    weight = to_host(layer.weight.data)  # (I, J, N, D)
    i, j, n, d = weight.shape
    by_child = graph.constant(weight.transpose(0, 2, 1, 3).reshape(i, n, j * d))

    def make():
        # û_j|i = u_i W_ij, (B, J, I, D): one product for each child
        made = graph.add("MatMul", graph.add("Transpose", u, perm=[1, 0, 2]), by_child)
        made = graph.add("Reshape", made, [0, 0, j, d])
        return graph.add("Transpose", made, perm=[1, 2, 0, 3])

    def total():
        # Σ_i u_i W_ij, (B, J, D): one product of the children side by side
        rows = graph.add("Reshape", u, [0, i * n])
        made = graph.add("MatMul", rows, graph.add("Reshape", by_child, [i * n, j * d]))
        return graph.add("Reshape", made, [0, j, d])

    return route(graph, Votes(make, total, (i, j)), layer.routing)


def shared_capsules(graph, u, layer, children):
    """Add the poses (B, J, D) of a `SharedCaps` for the capsules u (B, I, N)."""
    weight = graph.constant(to_host(layer.weight.data))  # (J, N, D)
    j, _, d = layer.weight.shape

    def make():
        # û_j|i = u_i W_j, (B, J, I, D)
        return graph.add("MatMul", graph.add("Unsqueeze", u, [1]), weight)

    def total():
        # (Σ_i u_i) W_j
        one = graph.add("Unsqueeze", graph.add("ReduceSum", u, [1]), [1])  # (B, 1, 1, N)
        return graph.add("Reshape", graph.add("MatMul", one, weight), [0, j, d])

    return route(graph, Votes(make, total, (children, j)), layer.routing)
