"""Gaussian mixtures p(x) = Σ_j π_j N(x; μ_j, Σ_j), fitted by EM.

    E   R_ij = π_j N(x_i; μ_j, Σ_j) / Σ_k π_k N(x_i; μ_k, Σ_k)     Bayes' theorem
    M   with r_ij = R_ij / Σ_i R_ij, the first two moments of the points of each cluster:
        μ_j = Σ_i r_ij x_i,  Σ_j = Σ_i r_ij (x_i − μ_j)(x_i − μ_j)ᵀ,  π_j = Σ_i R_ij / n

Every Gaussian is represented by its variances along orthogonal axes. With Σ = Q diag(λ) Qᵀ and
y = Qᵀ(x − μ), it is a product of one-dimensional Gaussians, so the same density formula serves all
three types of covariance.
"""

import numpy as np

from minicaps import ops
from minicaps.backend import Array, array_module
from minicaps.clustering import clusters
from minicaps.clustering.clusters import Clusters, check_positive, relative_rounding
from minicaps.clustering.kmeans import starting_point
from minicaps.clustering.steps import LEAST, log_density, m_step
from minicaps.sums import over_points, total

COVARIANCES = ("full", "diagonal", "isotropic")


def gmm(
    x: Array, k: int, *, covariance: str = "full", floor: float | None = None,
    sigma: float | None = None, start: Array | None = None, iterations: int = 100, seed: int = 0,
) -> Clusters:  # fmt: skip
    """Fit a mixture of k Gaussians to points x (n, d) by EM.

    Parameters
    ----------
    covariance
        "full", "diagonal" or "isotropic".

    floor
        Lower limit of the variance along any axis; smaller variances (or eigenvalues, if full) are
        raised to it. By default, the limit is about a millionth of the variance of all points,
        either per column, because columns may have different units, or averaged over the columns if
        isotropic. The limit is never smaller than the effect of rounding errors in x.

    sigma
        If given, all Gaussians are isotropic with this standard deviation and have equal weights.
        The algorithm is then soft K-means with K = 1/(2σ²), which becomes K-means for σ → 0.

    start
        Means (k, d), combined with equal weights and the covariance of all points, or
        responsibilities (n, k). If the two shapes coincide, `start` is interpreted as means. By
        default, the means are drawn by k-means++ with `seed`.

    iterations
        Maximum number of M steps.

    Returns
    -------
    Clusters
        The result, with the log-likelihood Σ_i ln p(x_i) as objective. The history begins with the
        initial means or, if `start` contains responsibilities, with the first M step.
    """
    x = clusters.check_points(x, k, iterations)
    if covariance not in COVARIANCES:
        raise ValueError(f"unknown covariance {covariance!r}: choose {', '.join(COVARIANCES)}")
    start = starting_point(x, k, start, seed, more_shapes=[(len(x), k)])
    from_means = start.shape == (k, x.shape[1])
    floor = _least_variances(x, start if from_means else x, covariance, floor, sigma)
    # Eigenvalues mix columns, so use units near the root of the floor; powers of 2 are exact.
    xp = array_module(x)
    unit = xp.ldexp(xp.ones_like(floor), xp.frexp(xp.sqrt(floor))[1])
    # A constant column becomes exactly 0: rounding its mean would be its variance.
    shift, held = xp.where(x.max(axis=0) == x.min(axis=0), x[0], 0), sigma is not None
    x, floor = (x - shift) / unit, floor / unit**2
    floor = floor.max() if covariance == "full" else floor

    def update(last):
        return _e_step(x, *_m_step(x, last, covariance, floor, held), covariance)

    # With equal shares, each of the k Gaussians is fitted to all points.
    equal = xp.full((len(x), k), 1 / k, dtype=x.dtype)
    everything = Clusters(xp.zeros((k, x.shape[1]), x.dtype) + total(x, 0) / len(x), equal, 0.0)
    if from_means:
        weights, _, *shape = _m_step(x, everything, covariance, floor, held)
        first = _e_step(x, weights, (start - shift) / unit, *shape, covariance)
    else:
        _check_shares(start)
        first = update(everything._replace(responsibilities=start))
    result = clusters.iterate(first, update, iterations if from_means else iterations - 1)
    history = tuple(_rescaled(record, shift, unit, covariance) for record in result.history)
    return history[-1]._replace(history=history)


def _least_variances(x, start, covariance, floor, sigma):
    """Return the lower limits (d,) of the variances in all columns, which are σ² if σ is given."""
    xp, limits = array_module(x), np.finfo(x.dtype)
    spread = m_step(x.T, xp.ones(len(x), x.dtype), 0)[4]
    noise = relative_rounding(x.dtype) * xp.maximum(abs(x).max(axis=0), abs(start).max(axis=0))
    if covariance == "isotropic":
        spread, noise = (xp.full_like(spread, n) for n in (spread.mean(), noise.max()))
    if sigma is not None:
        if covariance != "isotropic" or floor is not None:
            raise ValueError('sigma needs covariance="isotropic" and no floor: it fixes both')
        low = float(noise.max())
        return xp.full_like(spread, check_positive("sigma", sigma, x.dtype, low, power=2) ** 2)
    if floor is None:
        least = xp.maximum(1e-6 * spread, float(limits.tiny))
    else:
        least = xp.full_like(spread, check_positive("floor", floor, x.dtype))
    return xp.maximum(least, noise**2)


def _rescaled(record, shift, unit, covariance):
    """Undo the shift and division of points by `shift` and `unit` (d,) in the Clusters `record`."""
    square = {"full": unit[:, None] * unit, "diagonal": unit**2, "isotropic": unit[0] ** 2}
    n, log_volume = len(record.responsibilities), float(array_module(unit).log(unit).sum())
    return record._replace(
        centres=record.centres * unit + shift,
        covariances=record.covariances * square[covariance],
        objective=record.objective - n * log_volume,
    )


def _check_shares(start):
    least, wrong = float(start.min()), clusters.largest_of(start.sum(axis=1) - 1)
    if least < 0 or wrong > float(np.finfo(start.dtype).eps) ** 0.5:
        raise ValueError(
            "start responsibilities must not be negative and must sum to 1 in each row: "
            f"the smallest is {least:.3g}, and a sum is off by {wrong:.3g}"
        )


def _m_step(x, last, covariance, floor, held):
    """Fit Gaussians to the points, using the latest responsibilities as weights.

    floor: lower limit of the variances, (d,) or a number. If `held` is True, the variances are
    fixed at `floor` and the weights are equal. Returns the weights π (k,), the means μ (k, d), the
    variances λ (k, d) along the axes Q, and Q (k, d, d). For the coordinate axes, None is returned
    instead of Q.
    """
    xp, axes = array_module(x), None
    amount, share, mean, _, variance = m_step(x.T, last.responsibilities.T, 0)
    weights = amount / len(x)
    if held:
        variance, weights = xp.zeros_like(variance), xp.full_like(weights, 1 / len(amount))
    elif covariance == "isotropic":
        variance = xp.zeros_like(variance) + variance.mean(axis=1, keepdims=True)
    elif covariance == "full":
        # Σ_j = Σ_i r_ij (x_i − μ_j)(x_i − μ_j)ᵀ = Q diag(λ) Qᵀ
        away = x.T - mean[..., None]  # (k, d, n)
        variance, axes = xp.linalg.eigh(over_points(share[:, None] * away, away.mT))
        # All eigenvalues are as inexact as the largest
        variance = xp.maximum(variance, relative_rounding(x.dtype) * variance.max())
    mean = xp.where((amount <= LEAST)[:, None], last.centres, mean)  # if empty: keep
    return weights, mean, xp.maximum(variance, floor), axes


def _e_step(x, weights, centres, variance, axes, covariance):
    """Compute responsibilities and log-likelihood from the Gaussians returned by `_m_step`."""
    xp = array_module(x)
    away = x.T - centres[..., None]  # (k, d, n)
    if axes is not None:
        away = axes.mT @ away  # y = Qᵀ(x − μ)
    # ln π_j N_ij, (n, k)
    log_weights = xp.log(xp.maximum(weights, float(np.finfo(x.dtype).tiny)))
    logits = (log_density(away**2, variance) + log_weights[:, None]).T
    likelihood = float(ops.logsumexp.raw(logits, axis=1)[0].sum())
    R = ops.softmax.raw(logits, axis=1)[0]
    if covariance == "full":
        variance = (axes * variance[:, None]) @ axes.mT
    elif covariance == "isotropic":
        variance = variance[:, 0]
    return Clusters(centres, R, likelihood, weights, variance)
