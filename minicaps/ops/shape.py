"""Operations that rearrange the elements of an array; their pullbacks undo the rearrangement."""

from collections.abc import Sequence

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from minicaps.backend import array_module, is_array
from minicaps.graph import joint
from minicaps.sums import selected
from minicaps.tensor import Tensor, op

__all__ = ["concatenate", "expand", "getitem", "pad", "reshape", "stack", "transpose"]


@op
def reshape(x, *, shape: tuple[int, ...]):
    """Change the shape but keep the elements in row-major order; one entry of `shape` may be −1."""
    old = x.shape
    return x.reshape(shape), lambda g: g.reshape(old)


@op
def transpose(x, *, axes: tuple[int, ...] | None = None):
    """Reorder the axes (reversed by default), like numpy.transpose."""
    order = normalize_axis_tuple(axes or range(x.ndim)[::-1], x.ndim)
    back = tuple(sorted(range(len(order)), key=order.__getitem__))
    return x.transpose(order), lambda g: g.transpose(back)


@op
def expand(x, *, shape: tuple[int, ...]):
    """Broadcast `x` to `shape`; the backward pass sums the gradient over the broadcast axes."""
    return array_module(x).broadcast_to(x, shape), lambda g: g


def concatenate(tensors: Sequence[Tensor], *, axis: int = 0) -> Tensor:
    """Join `tensors` along an existing axis."""
    return _concatenate(*tensors, axis=axis)


@op
def _concatenate(*arrays, axis):
    xp, ends = array_module(*arrays), np.cumsum([a.shape[axis] for a in arrays]).tolist()
    y = xp.concatenate(arrays, axis=axis)
    return y, joint(lambda g, wanted: xp.split(g, ends[:-1], axis=axis))


def stack(tensors: Sequence[Tensor], *, axis: int = 0) -> Tensor:
    """Join `tensors` of the same shape along a new axis."""
    shape = list(tensors[0].shape)
    shape.insert(axis if axis >= 0 else axis + len(shape) + 1, 1)
    return concatenate([reshape(x, shape=shape) for x in tensors], axis=axis)


@op
def pad(x, *, width: int | tuple):
    """Pad `x` with zeros; `width` is ((before, after), ...), with one pair per axis."""
    inside = tuple(slice(before, before + n) for (before, _), n in zip(width, x.shape, strict=True))
    return array_module(x).pad(x, width), lambda g: g[inside]


def getitem(x: Tensor, index: object) -> Tensor:
    """Return x[index] for slices, None, integers, and integer or boolean arrays.

    If an element is selected several times, its gradients add up.
    """
    parts = index if isinstance(index, tuple) else (index,)
    xp = array_module(x.data if isinstance(x, Tensor) else x)
    return _getitem(x, index=tuple(_index_part(xp, p) for p in parts))


def _index_part(xp, part):
    """Convert a tensor, array or sequence to an array of `xp`.

    An empty sequence becomes an integer array.
    """
    if part is None or part is Ellipsis or isinstance(part, slice | int | np.integer | np.bool_):
        return part
    part = part.data if isinstance(part, Tensor) else part
    return xp.asarray(part, dtype=None if is_array(part) or len(part) else int)


@op
def _getitem(x, *, index):
    return x[index], lambda g: selected(index, g, x)


def output_size(size, kernel, stride):
    """Return the number of kernel positions along one axis of a padded image."""
    return (size - kernel) // stride + 1
