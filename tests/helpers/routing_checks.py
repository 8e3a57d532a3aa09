"""Helpers shared by the tests of several routings: votes, gradients, comparisons, edge cases."""

import functools

import numpy as np
from tensors import draw

from minicaps import Tensor
from minicaps.routing import agreement, agreement_plain, distance, distance_plain
from minicaps.routing.couplings import Windows

# name -> the fast routing, the plain one, and the options that make it this one
ROUTES = {
    "accumulate": (agreement, agreement_plain, {}),
    "recompute": (agreement, agreement_plain, {"update": "recompute"}),
    "spherical": (agreement, agreement_plain, {"update": "spherical"}),
    "leaky": (agreement, agreement_plain, {"orphans": True}),
    "leaky recompute": (agreement, agreement_plain, {"update": "recompute", "orphans": True}),
    "leaky spherical": (agreement, agreement_plain, {"update": "spherical", "orphans": True}),
    "distance": (distance, distance_plain, {}),
}
SOLVABLE = [name for name in ROUTES if name not in ("accumulate", "leaky")]

WINDOWS = Windows(size=(3, 4), kernel=2, stride=1, types=2)  # 2 × 3 windows of 8 children
VOTES_IN_WINDOWS = 2 * 6, 8, 2, 3  # two samples, two parents in each window


def named(name, plain=False, **options):
    """Return the routing of this name as a function of votes; update goes with iterations."""
    fast_route, plain_route, own = ROUTES[name]
    if options.get("iterations") == 1:
        own = {key: value for key, value in own.items() if key != "update"}
    return functools.partial(plain_route if plain else fast_route, **own, **options)


def differentiate(function, *arrays, **options):
    """Route arrays by `function`; return the Routed and the gradients of a random loss.

    Poses and activations both get a cotangent, as they do from margin loss and reconstruction.
    """
    tensors = [Tensor(a, requires_grad=True) for a in arrays]
    routed = function(*tensors, **options)
    rng = np.random.default_rng(9)
    c = rng.normal(size=routed.poses.shape).astype(routed.poses.dtype)
    d = rng.normal(size=routed.activations.shape).astype(routed.poses.dtype)
    ((routed.poses * c).sum() + (routed.activations * d).sum()).backward()
    return routed, [t.grad for t in tensors]


def assert_same(a, b, tolerance=1e-10):
    """Assert that two results of `differentiate` are equal in all parts."""
    (routed_a, gradients_a), (routed_b, gradients_b) = a, b
    for x, y in zip(routed_a, routed_b, strict=True):
        np.testing.assert_allclose(x.data, y.data, rtol=tolerance, atol=tolerance)
    for x, y in zip(gradients_a, gradients_b, strict=True):
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance * (1 + abs(y).max()))


def couple_one_by_one(logits, orphans=False, windows=None):
    """Return e^b / Σ e^b over the parents of each child, found by iterating over all windows.

    logits (B, I, J), or (B·P·Q, I, J) in windows.
    """
    e, total = np.exp(logits), {}
    for n, i, j in np.ndindex(e.shape):
        child = child_of(n, i, windows)
        total[child] = total.get(child, float(orphans)) + e[n, i, j]
    c = np.empty_like(e)
    for n, i, j in np.ndindex(e.shape):
        c[n, i, j] = e[n, i, j] / total[child_of(n, i, windows)]
    return c


def child_of(n, i, windows):
    """Return the sample, position and type of the i-th child in row n."""
    if windows is None:
        return n, i
    p, q = windows.grid
    sample, window = divmod(n, p * q)
    (y, x), position = divmod(window, q), i // windows.types
    k, m = divmod(position, windows.kernel)
    return sample, y * windows.stride + k, x * windows.stride + m, i % windows.types


def squashed(s):
    """Squash one vector."""
    n = np.linalg.norm(s)
    return n * s / (1 + n * n)


EDGES = {
    "one child": draw(2, 1, 3, 4),
    "one parent": draw(2, 5, 1, 4),
    "one number": draw(2, 5, 3, 1),
    "zero votes": np.zeros((2, 5, 3, 4)),
    "identical votes": np.broadcast_to(draw(4), (2, 5, 3, 4)),
    "one outlier": np.concatenate([draw(2, 4, 3, 4), 1e4 + draw(2, 1, 3, 4)], axis=1),
    "votes of 1e4": 1e4 * draw(2, 5, 3, 4),
    "votes of 1e-8": 1e-8 * draw(2, 5, 3, 4),
    "votes of 1e-30": 1e-30 * draw(2, 5, 3, 4),
    "no samples": np.zeros((0, 5, 3, 4)),
}
