"""Steps shared by clustering and routing, for plain arrays on the CPU or a GPU.

The last axis runs over points: x (…, D, I) contains I points in D dimensions, and weights (…, I)
specify how strongly each point belongs to a cluster. Leading axes (samples, clusters) broadcast.
"""

import math

from minicaps.backend import array_module
from minicaps.sums import over_points, total

LEAST = 1e-20  # products with its inverse stay finite in float32


def inverse(total):
    """Return 1/Σ_i w_i, or 0 for an empty cluster."""
    alive = total > LEAST
    return alive / array_module(total).where(alive, total, 1)


def weighted_mean(x, weights):
    """Return the total Σ_i w_i (…), the shares w_i/Σ w (…, I) and the mean of the points (…, D).

    A cluster with a total weight of at most LEAST counts as empty; its shares and mean are 0.
    """
    amount = total(weights, -1)
    share = weights * inverse(amount)[..., None]
    return amount, share, weighted_sum(x, share)


def weighted_sum(x, weights):
    """Return Σ_i w_i x_i (…, D)."""
    return over_points(x, weights[..., None])[..., 0]


def m_step(x, weights, floor):
    """Return the results of `weighted_mean`, (x − mean)² (…, D, I), and the variances (…, D).

    Variances below `floor` are raised to `floor`. Adding `floor` to all variances instead could
    lower the likelihood.
    """
    amount, share, mean = weighted_mean(x, weights)
    square = x - mean[..., None]
    square *= square
    variance = weighted_sum(square, share)
    return amount, share, mean, square, array_module(x).maximum(variance, floor)


def log_density(square, variance):
    """Return ln N(x; μ, σ²) for independent components.

    square: (x − μ)² (…, D, I). variance: σ² (…, D).
    """
    scaled = ((1 / variance)[..., None, :] @ square)[..., 0, :]
    log_scale = array_module(variance).log(2 * math.pi * variance).sum(axis=-1)
    return -0.5 * (scaled + log_scale[..., None])
