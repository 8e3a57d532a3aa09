"""Couplings that are trained instead of routed, as a control for every routing."""

from minicaps import ops
from minicaps.routing.couplings import couple
from minicaps.routing.routed import Routed


def learned(votes, logits, *, squash="paper", windows=None):
    """Combine votes by couplings softmax_j(b), with trained logits b (I, J) for all samples.

    Compare it with a routing to find out whether the routing does more than trained weights. With
    b = 0, it equals the first iteration of `agreement`. Arguments and result are those of every
    routing.
    """
    if votes.shape[1:3] != logits.shape:
        (i, j), given = logits.shape, f"{votes.shape[1]} and {votes.shape[2]}"
        raise ValueError(f"the learned couplings are for {i} children and {j} parents, not {given}")
    b = ops.expand(logits, shape=votes.shape[:3])
    c = couple(b, axis=2, windows=windows)
    v = ops.squash(ops.einsum("bij,bijd->bjd", c, votes), kind=squash)
    return Routed(v, ops.length(v), c.detach())
