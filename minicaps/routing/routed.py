"""The result of a routing and the options of the routings of vectors."""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import NamedTuple

from minicaps import ops
from minicaps.ops.capsule import check_squash
from minicaps.tensor import Tensor

UPDATES = ("accumulate", "recompute", "spherical")
GRADIENTS = ("unrolled", "stop", "implicit")
keeping = ContextVar("keeping", default=False)  # whether routings keep their history


@contextmanager
def keep_history() -> Iterator[None]:
    """Context manager that makes every routing record its iterations in `Routed.history`."""
    token = keeping.set(True)
    try:
        yield
    finally:
        keeping.reset(token)


class _Capsules(NamedTuple):
    poses: Tensor
    activations: Tensor
    couplings: Tensor


class Routed(_Capsules):
    """Output capsules of a routing as a tuple of poses, activations and couplings.

    Attributes
    ----------
    poses
        Poses (B, J, D).

    activations
        Activations (B, J), which are the lengths of the poses for vector capsules.

    couplings
        Couplings (B, I, J) of the last iteration, which divide each child among the parents,
        without a gradient. Rows sum to 1. With windows, the couplings of a child sum to 1 over all
        windows that contain the child. Leaky routing adds a last column with the share of the
        orphans.

    history
        A Routed for every iteration, without gradients; empty unless computed inside
        `keep_history`.
    """

    history = ()

    def with_history(self, history: Iterable["Routed"]) -> "Routed":
        """Store `history`, the Routed of every iteration, and return this result."""
        self.history = tuple(history)
        return self

    def map(self, function: Callable[[Tensor], Tensor]) -> "Routed":
        """Apply `function` to the poses, activations and couplings here and in the history."""
        history = (one.map(function) for one in self.history)
        return Routed(*map(function, self)).with_history(history)


def read_out(s, c, squash, earlier):
    """Squash the vectors s (B, J, D) and return them as a Routed.

    earlier: list of (s, c) from the previous iterations.
    """
    v = ops.squash(s, kind=squash)
    routed, history = Routed(v, ops.length(v), c.detach()), []
    if keeping.get():
        for s, c in earlier:
            v = ops.squash(s.detach(), kind=squash)
            history.append(Routed(v, ops.length(v), c.detach()))
        history.append(routed.map(Tensor.detach))
    return routed.with_history(history)


def check_votes(votes):
    """Raise ValueError unless `votes` has four axes, of which only the batch may be empty."""
    if votes.ndim != 4 or 0 in votes.shape[1:]:
        raise ValueError(f"votes must have shape (B, I, J, D) with I, J, D > 0, not {votes.shape}")


@dataclass(frozen=True)
class RoutingOptions:
    """Options of a routing of vectors, documented in `agreement`.

    update is None for routings without this option. Raises ValueError if an option is invalid or
    would have no effect.
    """

    iterations: int = 3
    update: str | None = "accumulate"
    gradient: str = "unrolled"
    inverse_temperature: float = 1.0
    squash: str = "paper"

    def __post_init__(self):
        if self.update not in (*UPDATES, None):
            raise ValueError(f"unknown update {self.update!r}: choose {', '.join(UPDATES)}")
        if not 1 <= self.iterations <= 10_000:  # more would seem to hang
            raise ValueError(f"routing takes 1 to 10,000 iterations, not {self.iterations}")
        if not 0 < self.inverse_temperature < math.inf:
            β = self.inverse_temperature
            raise ValueError(f"inverse_temperature must be positive and finite, not {β}")
        if self.gradient not in GRADIENTS:
            raise ValueError(f"unknown gradient {self.gradient!r}: choose {', '.join(GRADIENTS)}")
        check_squash(self.squash)
        for name in ("update", "gradient", "inverse_temperature"):
            value = getattr(self, name)
            if self.iterations == 1 and value not in (None, getattr(RoutingOptions, name)):
                why = "has no effect in 1 iteration, as all couplings are equal: leave it out"
                raise ValueError(f"{name} {value!r} {why}")
        if (self.gradient, self.update) == ("implicit", "accumulate"):
            raise ValueError(
                'gradient "implicit" needs a fixed point, but update "accumulate" has none: its'
                ' logits grow in every iteration. Use update "recompute" or "spherical", or another'
                " gradient"
            )
