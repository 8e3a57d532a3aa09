"""Reductions: sum, mean, max and logsumexp.

In all reductions, `axis` is None (all axes), an integer or a tuple.
"""

import math

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from minicaps import ranks, sums
from minicaps.backend import array_module, to_host
from minicaps.ops.math import as_float
from minicaps.tensor import op

__all__ = ["logsumexp", "max", "mean", "sum", "total"]


def _kept(shape, axis):
    """Return `shape` with the sizes of the reduced axes set to 1."""
    if axis is None:
        return (1,) * len(shape)
    reduced = normalize_axis_tuple(axis, len(shape))
    return tuple(1 if i in reduced else n for i, n in enumerate(shape))


def wide(dtype):
    """Return a dtype for sums of many terms: that of 16 bits overflows at 65,504."""
    return np.promote_types(dtype, np.float32)


@op
def sum(x, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False):
    """Sum over `axis`; every summand receives the full gradient."""
    xp = array_module(x)
    kept, shape = _kept(x.shape, axis), x.shape
    return sums.total(x, axis, keepdims=keepdims), lambda g: xp.broadcast_to(g.reshape(kept), shape)


@op
def mean(x, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False):
    """Mean over `axis`."""
    xp, x = array_module(x), as_float(x)
    kept, shape = _kept(x.shape, axis), x.shape
    count = math.prod(n for n, k in zip(shape, kept, strict=True) if k == 1)
    y = (sums.total(x, axis, keepdims=keepdims, dtype=wide(x.dtype)) / count).astype(x.dtype)
    return y, lambda g: xp.broadcast_to(g.reshape(kept) * (1 / (count or 1)), shape)


@op
def max(x, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False):
    """Maximum over `axis`; equal maxima share the gradient equally."""
    kept = _kept(x.shape, axis)
    y = x.max(axis=axis, keepdims=keepdims)

    def pullback(g):
        share = (x == y.reshape(kept)).astype(x.dtype)
        share /= sums.total(share, axis, keepdims=True, dtype=wide(x.dtype))
        return g.reshape(kept) * share

    return y, pullback


@op
def logsumexp(x, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False):
    """Compute ln Σ e^x over `axis` without overflow; the gradient is the softmax."""
    xp, x = array_module(x), as_float(x)
    kept = _kept(x.shape, axis)
    top = x.max(axis=axis, keepdims=True)
    top = xp.where(xp.isfinite(top), top, 0)
    e = xp.exp(x - top)
    z = sums.total(e, axis, keepdims=True, dtype=wide(x.dtype))
    empty = z == 0  # all are −inf: the result is −inf, its gradient 0
    z = z + empty
    y = xp.where(empty, -math.inf, top + xp.log(z)).astype(x.dtype)
    y = y if keepdims else y.squeeze(axis)
    return y, lambda g: g.reshape(kept) * (e / z).astype(x.dtype)


@op
def total(x):
    """Sum over the ranks, y = Σ_r x_r, so that ∂(Σ_s L_s)/∂x_r = Σ_s ∂L_s/∂y for every rank r."""

    def over_ranks(a):
        return a if ranks.count() == 1 else array_module(a).asarray(ranks.total(to_host(a)))

    return over_ranks(x), over_ranks
