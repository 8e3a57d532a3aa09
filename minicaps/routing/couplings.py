"""Coupling coefficients, which divide each child among its parents.

Parents compete only through their couplings; all other parts of a routing treat each parent
independently.
"""

import math
from typing import NamedTuple

from minicaps.backend import array_module
from minicaps.ops.conv import _places, _windows, check_window, windows
from minicaps.ops.shape import output_size
from minicaps.tensor import op


class Windows(NamedTuple):
    """The windows of a convolutional capsule layer, which may share children.

    The children form a grid of `size` (H, W) with `types` children at each position. Each parent
    sees a window of `kernel` × `kernel` positions, and neighboring windows are `stride` positions
    apart. Arrays of values for all windows have the shape (B·P·Q, I), where I =
    kernel·kernel·types, and may have additional axes of size 1.
    """

    size: tuple
    kernel: int
    stride: int
    types: int

    @property
    def grid(self):
        """The number of windows (P, Q) along the two axes of the grid."""
        return tuple(output_size(n, self.kernel, self.stride) for n in self.size)

    def gather(self, grid):
        """Return the children of every window: (B, H, W, T, …) -> (B·P·Q, K·K·T, …)."""
        (k, stride), (b, h, w, *rest) = (self.kernel, self.stride), grid.shape
        check_window((h, w), (k, k), stride, 0)
        maps = grid.reshape(b, h, w, math.prod(rest)).transpose(0, 3, 1, 2)  # _windows reads NCHW
        p, q = self.grid
        held = _windows(maps, window=(k, k), stride=stride)
        return held.reshape(b * p * q, k * k * rest[0], *rest[1:])

    def combine(self, values, function):
        """Combine the values of each child over all windows that contain it.

        Each combined value is stored in all windows that contain the child.

        function: `add` or `maximum` of the array module.
        """
        xp, k, step = array_module(values), self.kernel, self.stride
        seen = values.reshape(-1, *self.grid, k, k, self.types)
        start = 0 if function is xp.add else -xp.inf
        total = xp.full((len(seen), *self.size, self.types), start, values.dtype)
        for i, j, place in _places(total, (k, k), step, self.grid):
            function(place, seen[:, :, :, i, j], out=place)
        return windows(total, (k, k), step).reshape(values.shape)


@op
def couple(logits, *, axis=-1, orphans=False, windows=None):
    """Return the softmax c_ij = e^b_ij / Σ_k e^b_ik of logits b (B, I, J) over the parents' `axis`.

    orphans: whether to add a parent with logit 0, whose share, 1 − Σ_j c_ij, is not returned.
    windows: a `Windows`; the parents of a child are then those of all windows that contain it.
    """
    xp = array_module(logits)

    def total_of(values, function):
        return values if windows is None else windows.combine(values, function)

    top = total_of(logits.max(axis=axis, keepdims=True), xp.maximum)
    top = xp.maximum(top, 0) if orphans else top
    c = xp.exp(logits - top)
    total = total_of(c.sum(axis=axis, keepdims=True), xp.add)
    c /= total + xp.exp(-top) if orphans else total

    def pullback(g):
        return c * (g - total_of((g * c).sum(axis=axis, keepdims=True), xp.add))

    return c, pullback


def beside_orphans(c, windows=None):
    """Append the share of the orphans to an array of couplings (B, I, J) as the last column."""
    xp = array_module(c)
    taken = c.sum(axis=2, keepdims=True)
    taken = taken if windows is None else windows.combine(taken, xp.add)
    return xp.concatenate([c, xp.maximum(1 - taken, 0)], axis=2)
