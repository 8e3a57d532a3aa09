"""Matrix capsules and EM routing in ONNX.

Capsules are represented by poses (B, P, T, 4, 4) and activations (B, P, T) at P positions. Votes
have the layout (B, P, J, 16, I), with the children on the last axis. For the equations, see
`minicaps.routing.em`.
"""

import numpy as np

from minicaps.backend import to_host
from minicaps.export.onnx_layers import convolution
from minicaps.export.onnx_ops import alive, couple, inverse
from minicaps.export.onnx_routings import check_iterations
from minicaps.export.onnx_windows import Windows
from minicaps.nn.matrix import SIDE, _coordinates
from minicaps.routing.couplings import Windows as ArrayWindows
from minicaps.routing.couplings import couple as couple_arrays
from minicaps.routing.em import _temperatures

SIZE = SIDE * SIDE  # numbers in a pose


def primary_capsules(graph, x, layer, positions):
    """Add the poses and activations of a `MatrixPrimaryCaps` of features x (B, C, H, W)."""
    types, ends = layer.types, layer.types * SIZE
    maps = graph.add("Transpose", convolution(graph, x, layer.conv), perm=[0, 2, 3, 1])
    maps = graph.add("Reshape", maps, [0, positions, ends + types])
    poses = graph.add("Slice", maps, [0], [ends], [2])
    poses = graph.add("Reshape", poses, [0, positions, types, SIDE, SIDE])
    return poses, graph.add("Sigmoid", graph.add("Slice", maps, [ends], [ends + types], [2]))


def convolutional_capsules(graph, poses, activations, layer, size):
    """Add the poses and activations of a `MatrixConvCaps` for a grid of `size` (H, W).

    The size of the new grid is returned as well.
    """
    children, parents = layer.weight.shape[:2]
    types = children // layer.kernel**2
    windows = ArrayWindows(size, layer.kernel, layer.stride, types)
    held, positions = Windows(windows), np.prod(windows.grid)
    votes = matrix_votes(graph, held.gather(graph, poses, (SIDE, SIDE)), layer.weight, positions)
    activations = graph.add("Unsqueeze", held.gather(graph, activations), [2])
    start = np.zeros((positions, children, parents), np.float32)
    start, _ = couple_arrays.raw(start, axis=2, windows=windows)
    mean, a = em(graph, votes, activations, layer, start, windows=held)
    return graph.add("Reshape", mean, [0, positions, parents, SIDE, SIDE]), a, windows.grid


def class_capsules(graph, poses, activations, layer, size):
    """Add the activations (B, J) of a `MatrixClassCaps` for a grid of `size` (H, W)."""
    types, parents = layer.weight.shape[:2]
    positions = size[0] * size[1]
    children = positions * types
    votes = matrix_votes(graph, poses, layer.weight, positions)
    votes = graph.add("Transpose", votes, perm=[0, 2, 3, 1, 4])  # all positions side by side
    votes = graph.add("Reshape", votes, [0, parents, SIZE, children])
    coordinates = _coordinates(np, *size, types, np.float32)  # (I, 1, 16)
    votes = graph.add("Add", votes, coordinates.transpose(1, 2, 0))
    activations = graph.add("Reshape", activations, [0, 1, children])
    start = np.full((children, parents), 1 / parents)
    return em(graph, votes, activations, layer, start)[1]


def matrix_votes(graph, poses, weight, positions):
    """Add the votes V_ij = P_i W_ij (B, P, J, 16, I) of poses (B, P, I, 4, 4).

    weight: tensor W (I, J, 4, 4), the same at all positions.
    """
    i, j, n, _ = weight.shape
    rows = graph.add("Transpose", poses, perm=[2, 0, 1, 3, 4])
    rows = graph.add("Reshape", rows, [i, -1, n])  # (I, B·P·4, 4)
    matrices = to_host(weight.data).transpose(0, 2, 1, 3).reshape(i, n, j * n)
    made = graph.add("MatMul", rows, matrices)  # row (b, p, k), column (j, l)
    made = graph.add("Reshape", made, [i, -1, positions, n, j, n])
    made = graph.add("Transpose", made, perm=[1, 2, 4, 3, 5, 0])
    return graph.add("Reshape", made, [0, positions, j, n * n, i])


def em(graph, votes, activations, layer, start, *, windows=None):
    """Add the means (…, J, 16) and the activations (…, J) of EM routing.

    votes: (…, J, 16, I). activations: (…, 1, I). layer: a `MatrixCaps`. start: the initial
    responsibilities, an array (…, I, J).
    """
    options = layer.route.keywords
    check_iterations(options["iterations"])
    beta_u, beta_a = (to_host(beta.data)[:, None] for beta in (layer.beta_u, layer.beta_a))
    R = graph.constant(start.swapaxes(-1, -2))
    temperatures = _temperatures(options["inverse_temperature"], options["iterations"])
    for t, λ in enumerate(temperatures):
        # M: μ_j = Σ_i w_ij V_ij / Σ_i w_ij,  σ_j² = Σ_i w_ij (V_ij − μ_j)² / Σ_i w_ij
        w = graph.add("Mul", R, activations)  # (…, J, I)
        total = graph.add("ReduceSum", w, [-1])  # (…, J, 1)
        share = graph.add("Mul", w, inverse(graph, total))
        share = graph.add("Unsqueeze", share, [-1])
        mean = graph.add("MatMul", votes, share)  # (…, J, 16, 1)
        square = graph.add("Sub", votes, mean)
        square = graph.add("Mul", square, square)
        variance = graph.add("Max", graph.add("MatMul", square, share), options["floor"])
        # ln a_j = ln σ(λ (β_a − (β_u + Σ_d ln σ_jd) · Σ_i w_ij))
        log_scale = graph.add("ReduceSum", graph.add("Log", variance), [-2], keepdims=0)
        log_scale = graph.add("Mul", log_scale, 0.5)  # (…, J, 1)
        amount = total if options["step"] == "complete" else alive(graph, total)
        cost = graph.add("Mul", graph.add("Add", log_scale, beta_u), amount)
        z = graph.add("Mul", graph.add("Sub", beta_a, cost), λ)
        if t == len(temperatures) - 1:
            break
        log_a = graph.add("Neg", graph.add("Softplus", graph.add("Neg", z)))
        # E: R_ij ∝ a_j N(V_ij; μ_j, σ_j²), over the parents j
        precision = graph.add("Squeeze", graph.add("Reciprocal", variance), [-1])
        precision = graph.add("Unsqueeze", precision, [-2])  # (…, J, 1, 16)
        fit = graph.add("Squeeze", graph.add("MatMul", precision, square), [-2])  # (…, J, I)
        logits = graph.add("Sub", graph.add("Sub", log_a, log_scale), graph.add("Mul", fit, 0.5))
        R = couple(graph, logits, axis=-2, windows=windows)
    return graph.add("Squeeze", mean, [-1]), graph.add("Squeeze", graph.add("Sigmoid", z), [-1])
