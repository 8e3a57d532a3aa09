"""Matrix capsules, which consist of a 4×4 pose and an activation (Hinton, Sabour and Frosst 2018).

Notation: B is the batch size, H×W the grid of children with T types at each position, K×K the size
of a window, P×Q the grid of windows, and J the number of parent types. A grid of capsules is
represented by poses (B, H, W, T, 4, 4) and activations (B, H, W, T).
"""

import functools
from collections.abc import Callable

import numpy as np

from minicaps import ops
from minicaps.backend import array_module
from minicaps.graph import joint
from minicaps.nn import init
from minicaps.nn.init import Rng
from minicaps.nn.layers import Conv2d, parameter
from minicaps.nn.module import Module
from minicaps.routing import Routed, route_in_blocks
from minicaps.routing.couplings import Windows
from minicaps.routing.em import em
from minicaps.tensor import Tensor, op

__all__ = ["MatrixClassCaps", "MatrixConvCaps", "MatrixPrimaryCaps"]

SIDE = 4  # rows and columns of a pose
COPIES = 4  # arrays of the size of the votes in EM: the votes, their two powers, the gradient


@op
def matrix_votes(poses, weight):
    """Return votes V_ij = P_i W_ij (B, I, J, 16) for poses (B, I, 4, 4) and weight (I, J, 4, 4).

    With a bar denoting the gradient of the loss, P̄_i = Σ_j V̄_ij W_ijᵀ and W̄_ij = P_iᵀ V̄_ij,
    summed over the batch. The matrices of a child are placed side by side, so the votes and each of
    the gradients take one matrix product per child. In memory, the children form the last axis,
    which is the layout that EM routing reads.
    """
    fits = poses.ndim == weight.ndim == 4 and poses.shape[1] == weight.shape[0]
    if not fits or len({*poses.shape[2:], *weight.shape[2:]}) > 1:
        shapes = f"{poses.shape}, {weight.shape}"
        raise ValueError(f"poses (B, I, 4, 4) and matrices (I, J, 4, 4) do not match: {shapes}")
    xp = array_module(poses)
    (b, i, n, _), j = poses.shape, weight.shape[1]
    dtype = xp.result_type(poses.dtype, weight.dtype)
    P = poses.transpose(1, 0, 2, 3).reshape(i, b * n, n)
    W = weight.transpose(0, 2, 1, 3).reshape(i, n, j * n)

    def by_child():
        """Allocate an array (I, B·4, J·4) for P W, and return the array and a view (B, J, 4, 4, I).

        One row of padding ensures that corresponding values of adjacent children are not a power of
        two apart in memory. Without this padding, the values would compete for the same cache
        lines, and copying would take five times as long.
        """
        room = xp.empty((i, b * n + 1, j * n), dtype)[:, :-1]
        steps = room.strides
        apart = (n * steps[1], n * steps[2], steps[1], steps[2], steps[0])
        return room, xp.lib.stride_tricks.as_strided(room, (b, j, n, n, i), apart)

    room, by_parent = by_child()
    xp.matmul(P, W, out=room)  # row (b, k), column (j, l): Σ_m P_bkm W_jml
    votes = xp.ascontiguousarray(by_parent).reshape(b, j, n * n, i)

    def sweep(g, wanted):
        room, by_parent = by_child()
        xp.positive(g.transpose(0, 2, 3, 1).reshape(by_parent.shape), out=by_parent)
        grad_poses = (room @ W.transpose(0, 2, 1)).reshape(i, b, n, n).transpose(1, 0, 2, 3)
        grad_weight = (P.transpose(0, 2, 1) @ room).reshape(i, n, j, n).transpose(0, 2, 1, 3)
        return grad_poses, grad_weight

    return votes.transpose(0, 3, 1, 2), joint(sweep)


class MatrixPrimaryCaps(Module):
    """Primary matrix capsules, computed from the features at each position by a 1×1 convolution.

    Maps features (B, C, H, W) to poses (B, H, W, T, 4, 4) and activations (B, H, W, T). The
    activations pass through a sigmoid.
    """

    def __init__(self, channels: int, types: int, rng: Rng = None):
        self.conv = Conv2d(channels, types * (SIDE**2 + 1), 1, rng, init="glorot")
        self.types = types

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        maps = self.conv(x).transpose(0, 2, 3, 1)  # (B, H, W, T·16 + T)
        b, h, w, _ = maps.shape
        ends = self.types * SIDE**2
        poses = maps[..., :ends].reshape(b, h, w, self.types, SIDE, SIDE)
        return poses, ops.sigmoid(maps[..., ends:])


class MatrixCaps(Module):
    """Base class of layers with transformation matrices, parameters β_u and β_a, and EM routing."""

    def __init__(self, children: int, parents: int, rng: Rng = None, **routing: object):
        self.weight = parameter(init.pose_identity(rng, (children, parents, SIDE, SIDE)))
        self.beta_u = parameter(np.zeros(parents, np.float32))
        self.beta_a = parameter(np.zeros(parents, np.float32))
        self.route = functools.partial(em, **routing)
        nothing, one = Tensor(np.zeros((0, 1, 1, 1))), Tensor(np.zeros(1))
        self.route(nothing, nothing[:, :, 0, 0], one, one)  # raises for invalid options

    def routed(
        self, layer: Callable, poses: Tensor, activations: Tensor, votes_size: int
    ) -> Routed:
        if poses.shape != (*activations.shape, SIDE, SIDE):
            given = f"{poses.shape} and {activations.shape}"
            raise ValueError(f"poses must be (B, H, W, T, 4, 4), activations (B, H, W, T): {given}")
        inputs, parameters = [poses, activations], [self.weight, self.beta_u, self.beta_a]
        return route_in_blocks(layer, inputs, parameters, votes_size, copies=COPIES, keep=True)


class MatrixConvCaps(MatrixCaps):
    """Convolutional matrix capsules, whose K×K windows have separate parents but share matrices.

    Maps a grid of capsules of T types to a grid of poses (B, P, Q, J, 4, 4) and activations
    (B, P, Q, J), with couplings (B, P, Q, K·K·T, J). Each child is divided among all parents in all
    windows that contain it. The options are those of `em`.
    """

    def __init__(
        self, types: int, parents: int, kernel: int, rng: Rng = None, *, stride: int = 1,
        **routing: object,
    ):  # fmt: skip
        super().__init__(kernel * kernel * types, parents, rng, **routing)
        self.kernel, self.stride = kernel, stride

    def forward(self, poses: Tensor, activations: Tensor) -> Routed:
        b, h, w, types = activations.shape
        windows = Windows((h, w), self.kernel, self.stride, types)
        (p, q), (children, parents) = windows.grid, self.weight.shape[:2]

        def layer(poses, activations, weight, beta_u, beta_a):
            votes = matrix_votes(windows.gather(poses), weight)
            return self.route(votes, windows.gather(activations), beta_u, beta_a, windows=windows)

        routed = self.routed(layer, poses, activations, p * q * children * parents * SIDE**2)
        routed = routed.map(lambda x: x.reshape(b, p, q, *x.shape[1:]))
        poses = routed.poses.reshape(b, p, q, parents, SIDE, SIDE)
        return routed._replace(poses=poses).with_history(routed.history)


class MatrixClassCaps(MatrixCaps):
    """Class capsules, with one parent per class that receives votes from all positions.

    Maps a grid of capsules of T types to poses (B, J, 16), activations (B, J) and couplings
    (B, H·W·T, J). Since a type has the same matrix at all positions, the position is added to the
    votes ("coordinate addition"): the row and the column, scaled to between 0 and 1, are added to
    the first two entries in the last column of each vote.
    """

    def forward(self, poses: Tensor, activations: Tensor) -> Routed:
        _, h, w, types = activations.shape
        parents, children = self.weight.shape[1], h * w * types
        coordinates = _coordinates(array_module(poses.data), h, w, types, poses.dtype)

        def layer(poses, activations, weight, beta_u, beta_a):
            everywhere = ops.expand(weight, shape=(h * w, *weight.shape))
            everywhere = everywhere.reshape(h * w * weight.shape[0], parents, SIDE, SIDE)
            poses = poses.reshape(poses.shape[0], children, SIDE, SIDE)
            votes = matrix_votes(poses, everywhere) + coordinates
            activations = activations.reshape(activations.shape[0], children)
            return self.route(votes, activations, beta_u, beta_a)

        return self.routed(layer, poses, activations, children * parents * SIDE**2)


def _coordinates(xp, h, w, types, dtype):
    """Return the array (I, 1, 16) that coordinate addition adds to votes (B, I, J, 16)."""
    added = xp.zeros((h, w, types, 1, SIDE, SIDE), dtype)
    added[..., 0, -1] = ((xp.arange(h) + 0.5) / h)[:, None, None, None]
    added[..., 1, -1] = ((xp.arange(w) + 0.5) / w)[:, None, None]
    return added.reshape(h * w * types, 1, SIDE**2)
