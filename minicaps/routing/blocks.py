"""Evaluation of capsule layers on blocks of samples in parallel threads.

The votes û_j|i = W_ijᵀ u_i of CapsNet take 94 MB for a batch of 128. Votes of at most KEEP bytes
are kept for the backward pass; larger ones are recomputed block by block.
"""

from collections.abc import Callable, Sequence

import numpy as np

from minicaps import ops
from minicaps.backend import array_module
from minicaps.graph import is_recording, joint, recording
from minicaps.routing.routed import Routed
from minicaps.tensor import Tensor, op
from minicaps.threads import cores, in_threads, parts

BLOCK = 24 * 2**20  # bytes of votes per block: smaller ones cost more calls than cache they save
CHILDREN = 64  # number of children whose votes are computed at a time
KEEP = 2**28  # maximum bytes of votes that are kept for the backward pass


def _check_votes(u, weight):
    fits = u.ndim == 3 and weight.ndim == 4 and u.shape[1:] == (weight.shape[0], weight.shape[2])
    if not fits or 0 in weight.shape:
        shapes = f"{u.shape}, {weight.shape}"
        raise ValueError(f"capsules (B, I, N) and weights (I, J, N, D) do not match: {shapes}")


def make_votes_plain(u: Tensor, weight: Tensor) -> Tensor:
    """Return the votes û_j|i = W_ijᵀ u_i (B, I, J, D) of u (B, I, N) with weight (I, J, N, D)."""
    _check_votes(u, weight)
    return ops.einsum("bin,ijnd->bijd", u, weight)


@op
def make_votes(u, weight):
    """Return the votes of `make_votes_plain`, computed for a few children at a time.

    The votes have the memory layout (B, J, I, D), which suits the routings, and the weights should
    have the memory layout (I, N, J, D). A single matrix product then computes the votes of a child,
    which are reordered while still in the cache.
    """
    _check_votes(u, weight)
    xp, (i, j, n, d) = array_module(u, weight), weight.shape
    groups = parts(i, CHILDREN if xp is np else None, workers=1)
    matrices = weight.transpose(0, 2, 1, 3).reshape(i, n, j * d)
    votes = xp.empty((len(u), j, i, d), xp.result_type(u.dtype, weight.dtype))
    for some in groups:
        made = u[:, some].transpose(1, 0, 2) @ matrices[some]  # (some, B, J·D)
        votes[:, :, some] = made.reshape(*made.shape[:2], j, d).transpose(1, 2, 0, 3)

    def sweep(g, wanted):
        grad_u, grad_matrices = xp.empty(u.shape, g.dtype), xp.empty(matrices.shape, g.dtype)
        for some in groups:
            part = g[:, some].transpose(1, 0, 2, 3)
            part = part.reshape(*part.shape[:2], j * d)  # (some, B, J·D)
            if wanted[0]:
                grad_u[:, some] = (part @ matrices[some].transpose(0, 2, 1)).transpose(1, 0, 2)
            if wanted[1]:
                xp.matmul(u[:, some].transpose(1, 2, 0), part, out=grad_matrices[some])
        return grad_u, grad_matrices.reshape(i, n, j, d).transpose(0, 2, 1, 3)

    return votes.transpose(0, 2, 1, 3), joint(sweep)


def route_in_blocks(
    layer: Callable[..., Routed], inputs: Sequence[Tensor], parameters: Sequence[Tensor],
    votes_size: int, *, copies: int = 1, keep: bool | None = None,
) -> Routed:  # fmt: skip
    """Compute layer(*inputs, *parameters) for a few samples at a time to save memory.

    Parameters
    ----------
    layer
        Function of tensors that returns a Routed. The function must process each sample
        independently and must not depend on other tensors.
    inputs
        Tensors whose first axis is the batch.
    parameters
        Tensors that all samples share.
    votes_size
        Number of values in the votes of one sample.
    copies
        Number of arrays of the size of the votes that the routing processes. With more arrays,
        smaller blocks are used, so that they stay in the cache.
    keep
        Whether to keep the results of the forward pass for the backward pass instead of recomputing
        them. By default, the results are kept if all votes together take at most KEEP bytes.

    Returns
    -------
    Routed
        The result for all samples.
    """
    lengths = [len(x) for x in inputs]
    if len(set(lengths)) != 1:
        raise ValueError(f"the inputs have batches of different sizes: {lengths}")
    bytes_each = votes_size * inputs[0].dtype.itemsize
    keep = lengths[0] * bytes_each <= KEEP if keep is None else keep
    tensors = [*inputs, *parameters]
    joined, couplings, history = _route_in_blocks(
        *tensors, layer=layer, batched=len(inputs), block=copies * bytes_each,
        needed=[t.requires_grad for t in tensors], keep=keep and is_recording.get(),
    )  # fmt: skip
    return Routed(joined[..., :-1], joined[..., -1], couplings).with_history(history)


@op
def _route_in_blocks(*arrays, layer, batched, block, needed, keep):
    """Return an array (B, J, D + 1) of poses and activations, the couplings and the history.

    Poses and activations share one array because an op has only one differentiable value.

    batched: number of arrays with a batch axis. block: bytes per sample. needed: which of the
    arrays require gradients.
    """
    xp = array_module(*arrays)
    samples = len(arrays[0])
    workers = cores() if xp is np else 1
    room = BLOCK if xp is np else KEEP  # a GPU needs few, large blocks
    blocks = parts(samples, max(1, room // (block or 1)), workers) or [slice(0, 0)]
    each = in_threads if workers > 1 and len(blocks) > 1 else map

    def route(rows, needed):
        own = [x[rows] for x in arrays[:batched]] + list(arrays[batched:])
        tensors = [Tensor(x, requires_grad=need) for x, need in zip(own, needed, strict=True)]
        routed = layer(*tensors)
        last = routed.activations.reshape(*routed.activations.shape, 1)
        return tensors, ops.concatenate([routed.poses, last], axis=-1), routed

    def forward(rows):
        with recording(keep):
            tensors, joined, routed = route(rows, needed if keep else [False] * len(arrays))
        return (tensors, joined) if keep else None, joined.data, routed.couplings, routed.history

    def sweep(g, wanted):
        def backward(k):
            rows, (tensors, joined) = blocks[k], kept[k] or (None, None)
            kept[k] = None
            if joined is None:
                with recording(True):
                    tensors, joined, _ = route(rows, wanted)
            joined.backward(g[rows.start * per_sample : rows.stop * per_sample])
            return [t.grad for t in tensors]

        gradients = [None] * len(arrays)
        of_inputs = []
        for gradients_of_block in each(backward, range(len(blocks))):
            of_inputs.append(gradients_of_block[:batched])
            for k, gradient in enumerate(gradients_of_block[batched:], batched):
                if gradients[k] is None:
                    gradients[k] = gradient
                elif wanted[k]:
                    gradients[k] += gradient
        gradients[:batched] = [
            xp.concatenate(parts) if want else None
            for want, parts in zip(wanted, zip(*of_inputs, strict=True), strict=False)
        ]
        return gradients

    kept, joined, couplings, histories = map(list, zip(*each(forward, blocks), strict=True))
    joined = xp.concatenate(joined)
    per_sample = len(joined) // max(1, samples)
    longest = max(map(len, histories))  # blocks that converged earlier are repeated
    histories = [some + some[-1:] * (longest - len(some)) for some in histories]
    history = [Routed(*map(_end_to_end, zip(*some))) for some in zip(*histories)]  # noqa: B905
    return joined, joint(sweep), _end_to_end(couplings), history


def _end_to_end(tensors):
    """Concatenate the couplings, poses or activations of all blocks along the batch axis."""
    xp = array_module(tensors[0].data)
    return Tensor(xp.concatenate([t.data for t in tensors]))
