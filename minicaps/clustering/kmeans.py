"""K-means, soft K-means and spherical K-means, which minimize distances of points to centers.

    L = Σ_i min_j d(x_i, v_j)                   hard: the distance to the nearest center
    L = −(1/K) Σ_i ln Σ_j e^(−K d(x_i, v_j))    soft: a smooth minimum, hard for K → ∞

∂L/∂v_j = Σ_i c_ij ∂d/∂v_j with c_ij = softmax_j(−K d(x_i, v_j)). Setting this gradient to zero with
c fixed gives the centers, and the algorithm alternates between computing c and v:

    d = |x − v|²       v_j = Σ_i c_ij x_i / Σ_i c_ij    K-means: a mean
    d = −⟨x, v/|v|⟩    v_j = Σ_i c_ij x_i               spherical: d fixes only the direction of
                                                        v, so its length can count the followers
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from minicaps import ops
from minicaps.backend import Array, array_module, to_host
from minicaps.clustering import clusters
from minicaps.clustering.clusters import Clusters
from minicaps.clustering.steps import LEAST, weighted_mean, weighted_sum
from minicaps.sums import total


class Geometry(NamedTuple):
    """A distance between points and centers, and the centers that minimize this distance.

    cost: (x, centres) -> d(x_i, v_j) (n, k). alone: x -> d(x_i, x_i) (n,), the lowest possible cost
    of each point. gather: (x, c) -> Σ_i c_ij (k,) and centers (k, d). degree: the power of |x| that
    d is proportional to.
    """

    cost: Callable
    alone: Callable
    gather: Callable
    degree: int


def squared_distance(x, centres):
    """Return |x_i − v_j|² (n, k) for points (n, d) and centers (k, d)."""
    # One center at a time: this avoids an n × k × d array, and differences lose no digits.
    return array_module(x).stack([((x - v) ** 2).sum(axis=1) for v in centres], axis=1)


EUCLIDEAN = Geometry(squared_distance, lambda x: 0, lambda x, c: weighted_mean(x.T, c.T)[::2], 2)
SPHERICAL = Geometry(
    cost=lambda x, centres: -x @ ops.direction.raw(centres)[0].T,
    alone=lambda x: -ops.length.raw(x)[0],
    gather=lambda x, c: (total(c, 0), weighted_sum(x.T, c.T)),
    degree=1,
)


def kmeans(
    x: Array, k: int, *, start: Array | None = None, iterations: int = 100, seed: int = 0
) -> Clusters:
    """Cluster points around k means, assigning each point to the nearest mean (Lloyd 1982).

    A center without points moves to the point that is farthest from all centers. Columns with large
    values dominate the distances, so scale the columns of x first.

    Parameters
    ----------
    x
        Points (n, d).

    k
        Number of clusters.

    start
        Initial centers (k, d). By default, the centers are drawn by k-means++ with `seed`.

    iterations
        Maximum number of updates of the centers. The iteration stops earlier if no point changes
        its cluster.

    Returns
    -------
    Clusters
        The result, with the objective Σ_i min_j |x_i − v_j|².
    """
    return _cluster(x, k, EUCLIDEAN, math.inf, start, iterations, seed)


def soft_kmeans(
    x: Array, k: int, *, inverse_temperature: float, start: Array | None = None,
    iterations: int = 100, seed: int = 0,
) -> Clusters:  # fmt: skip
    """Cluster like `kmeans`, but divide points among centers: c_ij = softmax_j(−K |x_i − v_j|²).

    inverse_temperature: K, in units of 1/x²; the limit K → ∞ is K-means. Empty centers do not
    move. Returns `Clusters` with the objective −(1/K) Σ_i ln Σ_j exp(−K |x_i − v_j|²).
    """
    return _cluster(x, k, EUCLIDEAN, inverse_temperature, start, iterations, seed)


def spherical_kmeans(
    x: Array, k: int, *, inverse_temperature: float | None = None, start: Array | None = None,
    iterations: int = 100, seed: int = 0,
) -> Clusters:  # fmt: skip
    """Cluster points x (n, d) by direction, with costs −⟨x_i, v_j/|v_j|⟩ and sums as centers.

    inverse_temperature: K in c_ij = softmax_j(K ⟨x_i, v_j/|v_j|⟩), in units of 1/x. If K is None or
    infinite, each point is assigned to the center whose direction is closest to its own. Everything
    else works as in `kmeans` and `soft_kmeans`. The farthest point is the one whose cost would
    decrease the most if it became a center.
    """
    K = math.inf if inverse_temperature is None else inverse_temperature
    return _cluster(x, k, SPHERICAL, K, start, iterations, seed)


def _cluster(x, k, geometry, K, start, iterations, seed):
    x = clusters.check_points(x, k, iterations)
    hard = math.inf == K
    K = K if hard else clusters.check_positive("inverse_temperature", K, x.dtype)
    centres = starting_point(x, k, start, seed, geometry)

    def update(last):
        return _assign(x, _move(x, last, geometry, hard), geometry, K)

    return clusters.iterate(_assign(x, centres, geometry, K), update, iterations)


def starting_point(x, k, start, seed, geometry=EUCLIDEAN, more_shapes=()):
    """Return `start`, whose shape is (k, d) or one of `more_shapes`, or draw k points by k-means++.

    k-means++ draws each point with a probability that grows with its distance from the points
    chosen before (Arthur and Vassilvitskii 2007).
    """
    if start is not None:
        return clusters.check_start(start, x, seed, [(k, x.shape[1]), *more_shapes])
    rng = np.random.default_rng(seed)
    chosen = [int(rng.integers(len(x)))]
    gain = np.full(len(x), np.inf)
    while len(chosen) < k:
        # p_i ∝ min_j d(x_i, v_j) − d(x_i, x_i)
        cost = geometry.cost(x, x[chosen[-1:]])[:, 0] - geometry.alone(x)
        gain = np.minimum(gain, to_host(cost).astype(float).clip(min=0))
        if not gain.any():  # fewer distinct points than centers: any will do
            gain[:] = 1
        chosen.append(int(rng.choice(len(x), p=gain / gain.sum())))
    return x[chosen]


def _assign(x, centres, geometry, K):
    """Assign the points to the centers and compute the objective."""
    xp = array_module(x)
    cost = geometry.cost(x, centres)  # (n, k)
    least = cost.min(axis=1, keepdims=True)
    if math.isinf(K):
        nearest = cost.argmin(axis=1)
        c = (nearest[:, None] == xp.arange(len(centres))).astype(x.dtype)
        return Clusters(centres, c, float(least.sum()))
    with np.errstate(over="ignore"):  # e^−∞ is 0, as intended
        logits = -K * (cost - least)
    # −(1/K) ln Σ_j e^(−K d_ij), with the smallest d_ij factored out
    log_z = ops.logsumexp.raw(logits, axis=1)[0]
    objective = float(least.sum()) - float(log_z.sum()) / K
    return Clusters(centres, ops.softmax.raw(logits, axis=1)[0], objective)


def _move(x, last, geometry, hard):
    """Return the new centers, computed from the points assigned to them."""
    amount, centres = geometry.gather(x, last.responsibilities)
    empty = amount <= LEAST
    centres = array_module(x).where(empty[:, None], last.centres, centres)
    return _refill(x, centres, empty, geometry) if hard else centres


def _refill(x, centres, empty, geometry):
    """Move each empty center to the point whose cost decreases the most.

    The move never increases L.
    """
    cost = array_module(x).where(empty, math.inf, geometry.cost(x, centres))
    for j in np.flatnonzero(to_host(empty)):
        gain = cost.min(axis=1) - geometry.alone(x)
        most = int(gain.argmax())
        if float(gain[most]) <= clusters.rounding_of(x) ** geometry.degree:
            break  # fewer distinct points than centers
        centres[j] = x[most]
        cost[:, j] = geometry.cost(x, centres[j : j + 1])[:, 0]
    return centres
