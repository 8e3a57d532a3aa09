"""Sums that cost few digits and little time, however many terms they have.

NumPy sums pairwise along the axis whose values are neighbors in memory: the errors grow with the
logarithm of the number of terms. Along all other axes, it adds row after row to one total, whose
error grows with the number of rows: in float32, 2²⁵ ones add up to 2²⁴. `total` sums these axes in
a tree as well; the plain version is `x.sum(axis)`. `over_points` does the same for matrix products.

A gradient is a sum over all uses of a value. Where an op used only a part, `added` adds to this
part in place; the plain version adds an array of zeros with the gradient in its place.
"""

import itertools
import math
from typing import NamedTuple

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from minicaps.backend import array_module, as_array, is_array, scatter_add

SHORT = 128  # terms that are added as the array module does it, as in NumPy's own blocks
SHORT_ON_GPU = 2**16  # where hundreds of threads share the terms of a sum
CHAIN = 16  # rows added one after the other
MANY, BLOCK = 2048, 256  # points that BLAS adds one after the other, at most and in a block


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


def over_points(a, b):
    """Return a @ b (…, D, E) for a (…, D, I) and b (…, I, E).

    BLAS adds the terms one after the other, so the products of many points are summed in blocks.
    """
    if (points := a.shape[-1]) <= MANY:
        return a @ b
    sums = [a[..., k : k + BLOCK] @ b[..., k : k + BLOCK, :] for k in range(0, points, BLOCK)]
    return total(array_module(a).stack(sums), 0)


class selected(NamedTuple):
    """A gradient that is `values` at `index` of an array like `like`, and 0 elsewhere.

    The backward pass adds it to an existing gradient in place, so that a loop over the rows of a
    tensor does not take one array of the tensor's size per row.
    """

    index: tuple
    values: object
    like: object

    def add_to(self, total):
        """Add the gradient to the array `total`; repeated indices accumulate."""
        if any(is_array(p) and p.dtype.kind in "iu" for p in self.index):
            scatter_add(total, self.index, self.values)
        else:
            total[self.index] += self.values


def added(total, gradient, name, own):
    """Return total + gradient; `own` holds the names of totals that no other array shares."""
    if isinstance(gradient, selected):
        if name not in own:
            like = gradient.like
            total = array_module(like).zeros_like(like) if total is None else total.copy(order="K")
        gradient.add_to(total)
    elif total is None:
        return gradient
    else:
        total = as_array(total + gradient)
    own.add(name)
    return total
