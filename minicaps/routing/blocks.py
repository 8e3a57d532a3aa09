"""Capsule layers that never hold the votes of the whole batch.

The votes û_j|i = W_ijᵀ u_i of CapsNet fill 94 MB at batch 128. They are cheaper to compute than to
fetch from memory: we make those of a few samples, route them while they are in the cache, and
forget them; the backward pass makes them again.
"""

import numpy as np

from minicaps.backend import array_module, cores, in_threads
from minicaps.graph import is_recording, joint, recording
from minicaps.ops.product import einsum
from minicaps.ops.shape import concatenate
from minicaps.routing.contract import Routed
from minicaps.tensor import Tensor, op

BLOCK = 12 * 2**20  # bytes of votes at a time


def make_votes(u, weight):
    """û_j|i = W_ijᵀ u_i: capsules u (B, I, N) and weight (I, J, N, D) give votes (B, I, J, D)."""
    fits = u.ndim == 3 and weight.ndim == 4 and u.shape[1:] == (weight.shape[0], weight.shape[2])
    if not fits or 0 in weight.shape:
        raise ValueError(
            f"capsules (B, I, N) and weights (I, J, N, D) do not fit: {u.shape}, {weight.shape}"
        )
    return einsum("bin,ijnd->bijd", u, weight)


def route_in_blocks(layer, inputs, parameters, votes, *, keep=False):
    """Equal to layer(*inputs, *parameters), in less memory: a few samples at a time.

    layer: a function of tensors that returns Routed, treating every sample alone, and depending on
    no other tensors.
    inputs: tensors whose first axis is the batch. parameters: tensors that all samples share.
    votes: how many numbers the votes of one sample are. keep: hold what the forward pass made
    until the backward pass, for routings that cost more than memory does.
    """
    lengths = [len(x) for x in inputs]
    if len(set(lengths)) != 1:
        raise ValueError(f"the inputs have batches of different sizes: {lengths}")
    wanted = [t.requires_grad for t in (*inputs, *parameters)]
    record = []
    joined = _route_in_blocks(
        *inputs,
        *parameters,
        layer=layer,
        batched=len(inputs),
        votes=votes,
        keep=wanted if keep and is_recording.get() else None,
        record=record,
    )
    return Routed(joined[..., :-1], joined[..., -1], Tensor(record[-1]))


@op
def _route_in_blocks(*arrays, layer, batched, votes, keep, record):
    """Poses and activations side by side, (B, J, D + 1), since an op has one value."""
    xp = array_module(*arrays)
    samples = len(arrays[0])
    workers = cores() if xp is np else 1
    step = max(1, min(BLOCK // (votes * arrays[0].dtype.itemsize or 1), -(-samples // workers)))
    each = in_threads if workers > 1 and samples > step else map
    blocks = [slice(n, n + step) for n in range(0, max(1, samples), step)]

    def route(rows, wanted):
        own = [x[rows] for x in arrays[:batched]] + list(arrays[batched:])
        tensors = [Tensor(x, requires_grad=w) for x, w in zip(own, wanted, strict=True)]
        routed = layer(*tensors)
        last = routed.activations.reshape(*routed.activations.shape, 1)
        return tensors, concatenate([routed.poses, last], axis=-1), routed.couplings.data

    def forward(rows):
        with recording(bool(keep)):
            tensors, joined, couplings = route(rows, keep or [False] * len(arrays))
        return (tensors, joined) if keep else None, joined.data, couplings

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
        for block in each(backward, range(len(blocks))):
            of_inputs.append(block[:batched])
            for k, gradient in enumerate(block[batched:], batched):
                if gradients[k] is None:
                    gradients[k] = gradient
                elif wanted[k]:
                    gradients[k] += gradient
        gradients[:batched] = [
            xp.concatenate(parts) if want else None
            for want, parts in zip(wanted, zip(*of_inputs, strict=True), strict=False)
        ]
        return gradients

    kept, joined, couplings = map(list, zip(*each(forward, blocks), strict=True))
    joined = xp.concatenate(joined)
    per_sample = len(joined) // max(1, samples)
    record.append(xp.concatenate(couplings))
    return joined, joint(sweep)
