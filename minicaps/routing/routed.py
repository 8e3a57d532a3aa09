"""What every routing returns, and what routings of vectors are asked."""

import math
from typing import NamedTuple

from minicaps.ops.capsule import check_squash, length
from minicaps.ops.capsule import squash as squash_vectors
from minicaps.tensor import Tensor

GRADIENTS = ("unrolled", "stop", "implicit")
DEFAULTS = {"update": "accumulate", "gradient": "unrolled", "inverse_temperature": 1.0}


class Routed(NamedTuple):
    """Output capsules of a routing.

    poses (B, J, D); activations (B, J), for vector capsules the lengths of the poses;
    couplings (B, I, J), how each input divides itself among the parents (rows sum to 1; a record
    of the last iteration, without a gradient). Leaky routing has a column more, the orphans'
    share. In windows, what sums to 1 are the couplings of a child in all windows that hold it.
    """

    poses: Tensor
    activations: Tensor
    couplings: Tensor


def read_out(s, c, squash, history):
    """Return the vectors s (B, J, D), squashed, as Routed; `history` gets them, too."""
    v = squash_vectors(s, kind=squash)
    routed = Routed(v, length(v), c.detach())
    if history is not None:
        history.append(Routed(*(t.detach() for t in routed)))
    return routed


def check_votes(votes):
    """Raise ValueError unless `votes` has four axes and there is something to route."""
    if votes.ndim != 4 or 0 in votes.shape[1:]:
        raise ValueError(
            f"votes must have shape (B, I, J, D) with I, J and D at least 1, not {votes.shape}"
        )


def check_options(iterations, squash, gradient, inverse_temperature, **update):
    """Raise ValueError for an option that does not exist, or would have no effect."""
    if iterations < 1:
        raise ValueError(f"routing needs at least 1 iteration, not {iterations}")
    if not 0 < inverse_temperature < math.inf:
        raise ValueError(
            f"inverse_temperature must be positive and finite, not {inverse_temperature}"
        )
    if gradient not in GRADIENTS:
        raise ValueError(f"unknown gradient {gradient!r}: choose {', '.join(GRADIENTS)}")
    check_squash(squash)
    update |= {"gradient": gradient, "inverse_temperature": inverse_temperature}
    for name, value in update.items():
        if iterations == 1 and value != DEFAULTS[name]:
            raise ValueError(
                f"{name} {value!r} has no effect in 1 iteration, whose couplings are all equal:"
                " leave it out"
            )
