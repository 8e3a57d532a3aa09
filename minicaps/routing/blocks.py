"""A dense capsule layer that never holds the votes of the whole batch.

The votes û_j|i = W_ijᵀ u_i of CapsNet fill 94 MB at batch 128. They are cheaper to compute than to
fetch from memory: we make those of a few samples, route them while they are in the cache, and
forget them; the backward pass makes them again.
"""

from minicaps.backend import array_module
from minicaps.graph import joint, no_grad, recording
from minicaps.ops.capsule import length
from minicaps.ops.product import einsum
from minicaps.routing.contract import Routed
from minicaps.tensor import Tensor, op

BLOCK = 12 * 2**20  # bytes of votes at a time


def make_votes(u, weight):
    """û_j|i = W_ijᵀ u_i: capsules u (B, I, N) and weight (I, J, N, D) give votes (B, I, J, D)."""
    _check(u, weight)
    return einsum("bin,ijnd->bijd", u, weight)


def _check(u, weight):
    fits = u.ndim == 3 and weight.ndim == 4 and u.shape[1:] == (weight.shape[0], weight.shape[2])
    if not fits or 0 in weight.shape:
        raise ValueError(
            f"capsules (B, I, N) and weights (I, J, N, D) do not fit: {u.shape}, {weight.shape}"
        )


def route_in_blocks(u, weight, route):
    """Route the votes of capsules u (B, I, N) under weight (I, J, N, D), a few samples at a time.

    route: a function of votes that returns Routed, treating every sample alone. Equal to
    route(make_votes(u, weight)), in less memory.
    """
    _check(u, weight)
    record = []
    poses = _route_in_blocks(u, weight, route=route, record=record)
    return Routed(poses, length(poses), Tensor(record[-1]))


@op
def _route_in_blocks(u, weight, *, route, record):
    xp = array_module(u)
    inputs, outputs, _, size = weight.shape
    step = max(1, BLOCK // (inputs * outputs * size * u.dtype.itemsize))
    blocks = [slice(n, n + step) for n in range(0, max(1, len(u)), step)]
    with no_grad():
        routed = [route(make_votes(Tensor(u[rows]), Tensor(weight))) for rows in blocks]
    record.append(xp.concatenate([r.couplings.data for r in routed]))

    def sweep(g, wanted):
        capsules_grad, W = [], Tensor(weight, requires_grad=wanted[1])
        for rows in blocks:
            capsules = Tensor(u[rows], requires_grad=wanted[0])
            with recording(True):
                poses = route(make_votes(capsules, W)).poses
            poses.backward(g[rows])
            capsules_grad.append(capsules.grad)
        return xp.concatenate(capsules_grad) if wanted[0] else None, W.grad

    return xp.concatenate([r.poses.data for r in routed]), joint(sweep)
