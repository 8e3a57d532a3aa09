"""Moving elements without changing them: their gradients move back."""

from collections.abc import Sequence

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from minicaps.backend import array_module, is_array, scatter_add
from minicaps.graph import joint
from minicaps.tensor import Tensor, op

__all__ = ["concatenate", "expand", "getitem", "pad", "reshape", "stack", "transpose"]


@op
def reshape(x, *, shape: tuple[int, ...]):
    """Same elements in row-major order, another shape (one entry may be −1)."""
    old = x.shape
    return x.reshape(shape), lambda g: g.reshape(old)


@op
def transpose(x, *, axes: tuple[int, ...] | None = None):
    """Reorder the axes (reversed by default), as numpy.transpose."""
    order = normalize_axis_tuple(axes or range(x.ndim)[::-1], x.ndim)
    back = tuple(sorted(range(len(order)), key=order.__getitem__))
    return x.transpose(order), lambda g: g.transpose(back)


@op
def expand(x, *, shape: tuple[int, ...]):
    """Repeat `x` to `shape` as broadcasting does; the gradient is summed back by the engine."""
    return array_module(x).broadcast_to(x, shape), lambda g: g


def concatenate(tensors: Sequence[Tensor], *, axis: int = 0) -> Tensor:
    """Join `tensors` along an existing axis."""
    return _concatenate(*tensors, axis=axis)


@op
def _concatenate(*arrays, axis):
    xp = array_module(*arrays)
    ends = [0]
    for a in arrays:
        ends.append(ends[-1] + a.shape[axis])
    y = xp.concatenate(arrays, axis=axis)
    return y, joint(lambda g, wanted: xp.split(g, ends[1:-1], axis=axis))


def stack(tensors: Sequence[Tensor], *, axis: int = 0) -> Tensor:
    """Join `tensors` of one shape along a new axis."""
    shape = list(tensors[0].shape)
    shape.insert(axis if axis >= 0 else axis + len(shape) + 1, 1)
    return concatenate([reshape(x, shape=shape) for x in tensors], axis=axis)


@op
def pad(x, *, width: int | tuple):
    """Surround `x` with zeros: width is ((before, after), ...), one pair for each axis."""
    inside = tuple(slice(before, before + n) for (before, _), n in zip(width, x.shape, strict=True))
    return array_module(x).pad(x, width), lambda g: g[inside]


def getitem(x: Tensor, index: object) -> Tensor:
    """x[index], with slices, None, integers, integer and boolean arrays; repeats add up."""
    parts = index if isinstance(index, tuple) else (index,)
    xp = array_module(x.data if isinstance(x, Tensor) else x)
    return _getitem(x, index=tuple(_index_part(xp, p) for p in parts))


def _index_part(xp, part):
    """Turn tensors, arrays and sequences into arrays of `xp`; an empty one holds integers."""
    if part is None or part is Ellipsis or isinstance(part, slice | int | np.integer | np.bool_):
        return part
    part = part.data if isinstance(part, Tensor) else part
    return xp.asarray(part, dtype=None if is_array(part) or len(part) else int)


@op
def _getitem(x, *, index):
    xp = array_module(x)
    repeats = any(is_array(p) and p.dtype.kind in "iu" for p in index)

    def pullback(g):
        whole = xp.zeros_like(x)
        if repeats:
            scatter_add(whole, index, g)
        else:
            whole[index] = g
        return whole

    return x[index], pullback


def output_size(size, kernel, stride):
    """Number of places of a kernel along one axis of an image that is padded already."""
    return (size - kernel) // stride + 1
