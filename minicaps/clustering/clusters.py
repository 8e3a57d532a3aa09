"""What every clustering takes and returns, and the loop that all of them share."""

import math
from numbers import Integral
from typing import NamedTuple

import numpy as np

from minicaps.backend import array_module
from minicaps.clustering.steps import LEAST


class Clusters(NamedTuple):
    """k clusters of n points in d dimensions, after some iteration; arrays live where x does.

    centres (k, d); responsibilities (n, k), the share of each point that belongs to each centre
    (rows sum to 1; 0 or 1 where clusters are hard); objective, a number that never rises in the
    K-means and never falls in mixtures, of exactly these centres. Mixtures also have weights (k,)
    and covariances: (k, d, d) full, (k, d) diagonal, (k,) isotropic.
    history: in a result, the Clusters of every iteration, the last of which is the result.
    """

    centres: object
    responsibilities: object
    objective: float
    weights: object = None
    covariances: object = None
    history: tuple = ()


def iterate(first, update, iterations):
    """Apply `update` to Clusters until no responsibility changes: then nothing else would.

    A change counts beside the largest of its cluster: tiny shares move a centre like large ones.
    """
    history = [first]
    rounding = 16 * float(np.finfo(first.responsibilities.dtype).eps)
    for _ in range(iterations):
        before, now = history[-1].responsibilities, update(history[-1])
        history.append(now)
        shares = now.responsibilities
        alive = shares.sum(axis=0) > LEAST
        if bool((abs(shares - before) * alive <= rounding * shares.max(axis=0)).all()):
            break
    return history[-1]._replace(history=tuple(history))


def check_points(x, k, iterations):
    """Return the points x (n, d) in float32 or float64; raise ValueError for what cannot be used.

    float32 stays; other real numbers become float64.
    """
    x = array_module(x).asarray(x)
    if x.ndim != 2 or 0 in x.shape:
        raise ValueError(f"x must be points (n, d), n and d at least 1, not of shape {x.shape}")
    if x.dtype.kind not in "biuf":
        raise ValueError(f"x must hold real numbers, not {x.dtype}")
    if not isinstance(k, Integral) or not 1 <= k <= len(x):
        raise ValueError(f"k must be a whole number from 1 to {len(x)}, the number of points: {k}")
    if not isinstance(iterations, Integral) or iterations < 1:
        raise ValueError(f"iterations must be a whole number of at least 1, not {iterations}")
    x = x if x.dtype.char in "fd" else x.astype(float)
    _check_finite("x", x, x.size)
    least = math.sqrt(float(np.finfo(x.dtype).tiny / np.finfo(x.dtype).eps))
    if 0 < largest_of(x) < least:
        raise ValueError(
            f"the numbers of x are at most {largest_of(x):.3g}: the squares of numbers below"
            f" {least:.3g} vanish in {x.dtype}, and so would distances. Scale them up"
        )
    return x


def check_start(start, x, seed, shapes):
    """Return a copy of the given start, of one of `shapes`, in the dtype and place of x."""
    if seed != 0:
        raise ValueError(f"seed {seed} has no effect when start is given: leave one of them out")
    start = array_module(x).array(start, dtype=x.dtype)
    if start.shape not in shapes:
        raise ValueError(f"start must have shape {' or '.join(map(str, shapes))}: {start.shape}")
    _check_finite("start", start, x.size)
    return start


def _check_finite(name, array, size):
    limit = math.sqrt(float(np.finfo(array.dtype).max) / (8 * size))
    if not math.isfinite(largest := largest_of(array)):
        raise ValueError(f"{name} must be finite: it has {largest}. Mend or remove such numbers")
    if largest > limit:
        raise ValueError(
            f"the squares of {name} must have a finite sum: {array.dtype} allows numbers up to"
            f" {limit:.3g}, not {largest:.3g}. Remove or scale down what is larger"
        )


def largest_of(array):
    """Largest absolute value, a Python number."""
    return float(abs(array).max())


def relative_rounding(dtype):
    """How far rounding may move a mean of numbers up to 1."""
    return 100 * float(np.finfo(dtype).eps)


def rounding_of(array):
    """How far rounding may move a mean of such numbers: two that are closer count as equal."""
    return relative_rounding(array.dtype) * largest_of(array)


def check_positive(name, value, dtype, low=0, power=1):
    """Return `value` as a Python number, at least `low`, with value^±power inside of `dtype`."""
    limits = np.finfo(dtype)
    low = max(low, float(limits.tiny) ** (1 / power))
    high = (float(limits.max) / 8) ** (1 / power)
    if not low <= value <= high:
        raise ValueError(f"{name} must be positive, for this x {low:.3g} to {high:.3g}: {value}")
    return float(value)
