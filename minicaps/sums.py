"""Sums whose rounding errors do not grow with the number of terms, for any axes and memory layout.

NumPy sums pairwise along the axis whose values are neighbors in memory: the errors grow with the
logarithm of the number of terms. Along all other axes, it adds row after row to one total, whose
error grows with the number of rows: in float32, 2²⁵ ones add up to 2²⁴. `total` sums these axes in
a tree as well. The plain version is `x.sum(axis)`.
"""

import itertools
import math

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from minicaps.backend import array_module

SHORT = 128  # terms that are added as the array module does it, as in NumPy's own blocks
SHORT_ON_GPU = 2**16  # where hundreds of threads share the terms of a sum
CHAIN = 16  # rows added one after the other


def total(x, axis=None, *, keepdims=False, dtype=None):
    """Sum an array over `axis` (None, an integer or a tuple), as `x.sum` does but accurately.

    dtype: dtype of the sums, by default as in `x.sum`. The result is an array.
    """
    xp = array_module(x)
    few = SHORT if xp is np else SHORT_ON_GPU
    if x.size > few:
        axes = normalize_axis_tuple(range(x.ndim) if axis is None else axis, x.ndim)
    if x.size <= few or math.prod(x.shape[n] for n in axes) <= few:
        return xp.asarray(x.sum(axis=axis, keepdims=keepdims, dtype=dtype))
    kept = [n for n in range(x.ndim) if n not in axes]
    order = sorted(range(x.ndim), key=lambda n: -abs(x.strides[n]))  # outermost in memory first
    y, reduced = x.transpose(order), [n in axes for n in order]
    if y.flags.c_contiguous:  # adjacent axes count as one
        runs = [list(run) for _, run in itertools.groupby(order, lambda n: n in axes)]
        y = y.reshape([math.prod(x.shape[n] for n in run) for run in runs])
        reduced = [run[0] in axes for run in runs]
    for n in reversed(range(y.ndim)):
        if reduced[n]:
            pairwise = n == y.ndim - 1 and y.strides[n] == y.itemsize
            y = y.sum(axis=n, dtype=dtype) if pairwise else _over_rows(y, n, dtype)
    in_memory = [n for n in order if n in kept]
    y = xp.asarray(y).reshape([x.shape[n] for n in in_memory])
    y = y.transpose([in_memory.index(n) for n in kept])
    return y.reshape([1 if n in axes else x.shape[n] for n in range(x.ndim)]) if keepdims else y


def _over_rows(x, axis, dtype):
    """Sum over one axis in chains of CHAIN terms, whose sums are summed in the same way.

    The terms of a chain are far apart, so that long runs of neighbors are added to each other.
    """
    while (n := x.shape[axis]) > CHAIN:
        k, (before, after) = n // CHAIN, (x.shape[:axis], x.shape[axis + 1 :])
        whole = (*(slice(None),) * axis, slice(CHAIN * k))
        rest = (*whole[:-1], slice(CHAIN * k, None))
        sums = x[whole].reshape(*before, CHAIN, k, *after).sum(axis=axis, dtype=dtype)
        x = array_module(x).concatenate([sums, x[rest]], axis=axis) if n % CHAIN else sums
    return x.sum(axis=axis, dtype=dtype)
