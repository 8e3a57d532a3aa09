"""Input checks, result type and iteration loop shared by all clustering algorithms."""

import math
from numbers import Integral
from typing import NamedTuple

import numpy as np

from minicaps.backend import array_module, as_array
from minicaps.clustering.steps import LEAST


class Clusters(NamedTuple):
    """k clusters of n points in d dimensions after an iteration; arrays are on the device of x.

    Attributes
    ----------
    centres
        Cluster centers (k, d).

    responsibilities
        Responsibilities (n, k), which are the shares of each point that belong to the centers. Rows
        sum to 1, and for hard clusters, the entries are 0 or 1.

    objective
        Value of the objective for exactly these centers. The objective never increases in the
        variants of K-means and never decreases in mixtures.

    weights, covariances
        Only in mixtures: weights (k,) and covariances, which are (k, d, d) if full, (k, d) if
        diagonal, and (k,) if isotropic.

    history
        In a result, the Clusters of every iteration, ending with those of the result.
    """

    centres: object
    responsibilities: object
    objective: float
    weights: object = None
    covariances: object = None
    history: tuple = ()


def iterate(first, update, iterations):
    """Apply `update` to Clusters until the responsibilities no longer change.

    Changes are measured relative to the largest responsibility in the cluster, because even tiny
    responsibilities can move a center.
    """
    history = [first]
    rounding = 16 * float(np.finfo(first.responsibilities.dtype).eps)
    for _ in range(iterations):
        before, now = history[-1], update(history[-1])
        history.append(now)
        shares = now.responsibilities
        alive = shares.sum(axis=0) > LEAST
        change = abs(shares - before.responsibilities) * alive <= rounding * shares.max(axis=0)
        if bool(change.all()) and _alike(now.covariances, before.covariances, rounding):
            break
    return history[-1]._replace(history=tuple(history))


def _alike(new, old, rounding):
    """Return whether covariances, which even a tiny share of a distant point changes, agree."""
    return old is None or bool((abs(new - old) <= rounding * abs(new).max()).all())


def check_points(x, k, iterations):
    """Return the points x (n, d) in float32 or float64, or raise ValueError for invalid arguments.

    Arrays in float32 are kept; other real dtypes are converted to float64.
    """
    x = as_array(x)
    if x.ndim != 2 or 0 in x.shape:
        raise ValueError(f"x must have shape (n, d) with n and d at least 1, not {x.shape}")
    if x.dtype.kind not in "biuf":
        raise ValueError(f"x must contain real numbers, not {x.dtype}")
    if not isinstance(k, Integral) or not 1 <= k <= len(x):
        raise ValueError(f"k must be an integer from 1 to {len(x)}, the number of points, not {k}")
    if not isinstance(iterations, Integral) or iterations < 1:
        raise ValueError(f"iterations must be an integer of at least 1, not {iterations}")
    x = x if x.dtype.char in "fd" else x.astype(float)
    _check_finite("x", x, x.size)
    least = math.sqrt(float(np.finfo(x.dtype).tiny / np.finfo(x.dtype).eps))
    if 0 < largest_of(x) < least:
        raise ValueError(
            f"the values of x are at most {largest_of(x):.3g}, but the squares of values below"
            f" {least:.3g} vanish in {x.dtype}, and so would distances: scale x up"
        )
    return x


def check_start(start, x, seed, shapes):
    """Return a copy of `start`, which must have one of `shapes`, with the dtype and device of x."""
    if seed != 0:
        raise ValueError(f"seed {seed} has no effect when start is given: leave out one of them")
    start = array_module(x).array(start, dtype=x.dtype)
    if start.shape not in shapes:
        raise ValueError(f"start needs shape {' or '.join(map(str, shapes))}, not {start.shape}")
    _check_finite("start", start, x.size)
    return start


def _check_finite(name, array, size):
    limit = math.sqrt(float(np.finfo(array.dtype).max) / (8 * size))
    if not math.isfinite(largest := largest_of(array)):
        raise ValueError(f"{name} must be finite, but contains {largest}: correct or remove it")
    if largest > limit:
        raise ValueError(
            f"the squares of {name} must have a finite sum, so {array.dtype} allows values up to"
            f" {limit:.3g}, not {largest:.3g}: remove or scale down larger values"
        )


def largest_of(array):
    """Return the largest absolute value in `array` as a Python number."""
    return float(abs(array).max())


def relative_rounding(dtype):
    """Return a bound on the rounding error in a mean of numbers of magnitude at most 1."""
    return 100 * float(np.finfo(dtype).eps)


def rounding_of(array):
    """Return a bound on the rounding error in a mean of values from `array`.

    Means that differ by less than this bound count as equal.
    """
    return relative_rounding(array.dtype) * largest_of(array)


def check_positive(name, value, dtype, low=0, power=1):
    """Return `value` as a float, or raise ValueError if it is out of range.

    The value must be at least `low`, and value^±power must be representable in `dtype`.
    """
    limits = np.finfo(dtype)
    low = max(low, float(limits.tiny) ** (1 / power))
    high = (float(limits.max) / 8) ** (1 / power)
    if not low <= value <= high:
        raise ValueError(f"{name} must be positive, here {low:.3g} to {high:.3g}, not {value}")
    return float(value)
