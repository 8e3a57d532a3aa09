"""Cost model of data-parallel training: summing the gradients of several ranks, and a whole step.

A message of n bytes takes latency + n · per_byte, and adding n received bytes takes n · per_added.
Every rank can send one message and receive another at the same time, and does not slow down the
messages of others (Hockney 1994; Thakur, Rabenseifner, and Gropp 2005). Times are in seconds.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate, combinations
from typing import NamedTuple

import numpy as np


class Link(NamedTuple):
    """Connection between ranks: seconds per message, per byte sent, and per byte added."""

    latency: float
    per_byte: float
    per_added: float


class Work(NamedTuple):
    """Work on the longest path of a sum: messages, bytes sent, and bytes added, one by one."""

    messages: int
    sent: float
    added: float

    def seconds(self, link: Link) -> float:
        return (
            self.messages * link.latency + self.sent * link.per_byte + self.added * link.per_added
        )


def tree(ranks: int, size: float) -> Work:
    """Return the work of recursive doubling for an array of `size` bytes.

    In each round, partners exchange the sums that they have. Ranks beyond a power of two first give
    their array to a partner, and receive the total at the end.
    """
    rounds, extra = _rounds(ranks)
    return Work(rounds + 2 * extra, size * (rounds + 2 * extra), size * (rounds + extra))


def ring(ranks: int, size: float) -> Work:
    """Return the work of a ring, in which each rank passes pieces of size / ranks to the next.

    ranks − 1 steps add the pieces up, and as many pass on the totals.
    """
    share = (ranks - 1) / ranks
    return Work(2 * (ranks - 1), 2 * size * share, size * share)


def halving(ranks: int, size: float) -> Work:
    """Return the work of recursive halving, then doubling (Rabenseifner 2004).

    In each round of the first half, partners exchange halves of what they still sum, so each rank
    ends with the total of one piece; the second half collects the pieces in reverse. Ranks beyond a
    power of two take part as in `tree`.
    """
    rounds, extra = _rounds(ranks)
    share = 1 - 0.5**rounds
    sent, added = 2 * size * (share + extra), size * (share + extra)
    return Work(2 * (rounds + extra), sent, added)


def _rounds(ranks):
    """Return the rounds among the largest power of two, and 1 if there are more ranks, else 0."""
    rounds = ranks.bit_length() - 1
    return rounds, int(ranks > 2**rounds)


SUMS: dict[str, Callable[[int, float], Work]] = {"tree": tree, "ring": ring, "halving": halving}


def fastest(ranks: int, size: float, link: Link) -> str:
    """Return the name of the fastest sum of an array of `size` bytes."""
    return min(SUMS, key=lambda name: SUMS[name](ranks, size).seconds(link))


class Step(NamedTuple):
    """Measured seconds of a training step on one rank, for growing numbers of images.

    backward: share of this time that the backward pass takes.
    """

    images: Sequence[int]
    seconds: Sequence[float]
    backward: float

    def seconds_of(self, images: float) -> float:
        """Interpolate between the measured numbers of images."""
        return float(np.interp(images, self.images, self.seconds))

    def out_of_order(self) -> tuple[int, int] | None:
        """Return numbers of images (fewer, more) of which the fewer took longer by over a tenth.

        None if there are no such numbers. Otherwise the machine was busy, and the times say little.
        """
        timed = list(zip(self.images, self.seconds, strict=True))
        for (fewer, longer), (more, taken) in combinations(timed, 2):
            if longer > 1.1 * taken:
                return fewer, more
        return None


def step_seconds(
    step: Step, images: int, ranks: int, size: float, link: Link, buckets: int = 1
) -> float:
    """Return the time of a training step that sums gradients of `size` bytes.

    The gradients are summed in equal buckets, each by the fastest sum. Buckets are ready at equal
    intervals of the backward pass, the last one at its end. Sums do not slow down the computation.

    images: number of images on the busiest rank.
    """
    compute = step.seconds_of(images)
    if ranks == 1:
        return compute
    part = size / buckets
    taken = SUMS[fastest(ranks, part, link)](ranks, part).seconds(link)
    interval = step.backward * compute / buckets
    ready = (interval * (k + 1) for k in range(buckets))
    *_, end = accumulate(ready, lambda end, ready: max(end, ready) + taken, initial=0.0)
    return compute + end - step.backward * compute


# ---- fit


def fit_link(
    measured: Sequence[tuple[int, float, float]],
    per_added: float,
    work: Callable[[int, float], Work],
) -> tuple[Link, float]:
    """Fit latency and bandwidth to measured sums, and return the link and its largest error.

    Parameters
    ----------
    measured
        Ranks, bytes and seconds of each sum.
    per_added
        Seconds per added byte, measured separately: sums alone cannot tell it from `per_byte`.
    work
        The sum that was used: `tree`, `ring` or `halving`.

    The fit minimizes the squares of relative errors. A parameter that would be negative is zero.
    """
    works = [work(ranks, size) for ranks, size, _ in measured]
    seconds = np.array([taken for *_, taken in measured])
    columns = np.array([[w.messages, w.sent] for w in works]) / seconds[:, None]
    target = 1 - per_added * np.array([w.added for w in works]) / seconds
    found = []
    for kept in ([0, 1], [0], [1], []):
        some = np.zeros(2)
        some[kept] = np.linalg.lstsq(columns[:, kept], target, rcond=None)[0]
        if (some >= 0).all():
            off = columns @ some - target
            found.append((float(off @ off), float(np.abs(off).max()), some.tolist()))
    _, error, (latency, per_byte) = min(found)
    return Link(latency, per_byte, per_added), error
