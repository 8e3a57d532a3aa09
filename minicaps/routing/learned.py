"""Trained couplings, which serve as a control for all routing algorithms."""

from minicaps import ops
from minicaps.routing.couplings import couple
from minicaps.routing.routed import Routed


def learned(votes, logits, *, squash="paper", windows=None):
    """Combine votes with couplings softmax_j(b); all samples share the trained logits b (I, J).

    A comparison with a routing algorithm shows whether routing achieves more than trained weights.
    With b = 0, the result equals that of the first iteration of `agreement`. The other arguments
    and the result are the same as for all routings.
    """
    if votes.shape[1:3] != logits.shape:
        (i, j), given = logits.shape, f"{votes.shape[1]} and {votes.shape[2]}"
        raise ValueError(f"the learned couplings are for {i} children and {j} parents, not {given}")
    b = ops.expand(logits, shape=votes.shape[:3])
    c = couple(b, axis=2, windows=windows)
    v = ops.squash(ops.einsum("bij,bijd->bjd", c, votes), kind=squash)
    return Routed(v, ops.length(v), c.detach())
