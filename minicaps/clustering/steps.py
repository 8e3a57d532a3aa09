"""The steps that clustering and routing share, on plain arrays of either device.

Points are the last axis: x (…, D, I) holds I points of D numbers, weights (…, I) say how much each
belongs to a cluster. Leading axes (samples, clusters) broadcast.
"""

import math

from minicaps.backend import array_module

LEAST = 1e-20  # products with its inverse stay finite in float32


def inverse(total):
    """Return 1/Σ_i w_i, and 0 for an empty cluster."""
    alive = total > LEAST
    return alive / array_module(total).where(alive, total, 1)


def weighted_mean(x, weights):
    """Return Σ_i w_i (…), the shares w_i/Σ w (…, I), and the mean of the points (…, D).

    A cluster of total weight up to LEAST counts as empty: shares and mean 0.
    """
    total = weights.sum(axis=-1)
    share = weights * inverse(total)[..., None]
    return total, share, (x @ share[..., None])[..., 0]


def m_step(x, weights, floor):
    """Moments of each cluster: as `weighted_mean`, then (x − mean)² (…, D, I), variances (…, D).

    floor: variances below it are raised to it (clipped: adding it could lower the likelihood).
    """
    total, share, mean = weighted_mean(x, weights)
    square = x - mean[..., None]
    square *= square
    variance = (square @ share[..., None])[..., 0]
    return total, share, mean, square, array_module(x).maximum(variance, floor)


def log_density(square, variance):
    """ln N(x; μ, σ²) of independent components: square (x − μ)² (…, D, I), variance (…, D)."""
    scaled = ((1 / variance)[..., None, :] @ square)[..., 0, :]
    log_scale = array_module(variance).log(2 * math.pi * variance).sum(axis=-1)
    return -0.5 * (scaled + log_scale[..., None])
