"""The cost model: its formulas equal counted sums, and fits recover known parameters."""

import numpy as np
import pytest

from minicaps.bench import cost
from minicaps.bench.cost import Link, Step, Work

# ---- sums of arrays that lie on simulated ranks


class Clock:
    """Ranks that send and add arrays, and the work on the longest path to each of them."""

    def __init__(self, ranks):
        self.paths = [np.zeros(3) for _ in range(ranks)]  # messages, bytes sent, bytes added

    def send(self, messages):
        """Let all messages (sender, receiver, bytes, added) of a round travel at the same time."""
        arrived = []
        for sender, receiver, size, added in messages:
            path = max(self.paths[sender], self.paths[receiver], key=tuple)
            arrived.append((receiver, path + np.array([1, size, added * size])))
        for receiver, path in arrived:
            self.paths[receiver] = path

    def longest(self):
        return max(self.paths, key=tuple)


def exchange(arrays, clock, piece_of, partner_of, added):
    """Let each rank send a piece to a partner, which adds it or keeps it."""
    sent, messages = [], []
    for rank, array in enumerate(arrays):
        if (partner := partner_of(rank)) is not None:
            piece = piece_of(rank)
            sent.append((partner, piece, array[piece].copy()))
            messages.append((rank, partner, array[piece].nbytes, added))
    for partner, piece, values in sent:
        arrays[partner][piece] = arrays[partner][piece] + values if added else values
    clock.send(messages)


def folded(arrays, clock, work):
    """Sum a number of ranks that need not be a power of two by `work` on a power of two."""
    n, everything = len(arrays), slice(None)
    most = 2 ** (n.bit_length() - 1)
    if most < n:
        exchange(
            arrays, clock, lambda r: everything, lambda r: r - most if r >= most else None, True
        )
    work(arrays[:most], clock)
    if most < n:
        exchange(
            arrays, clock, lambda r: everything, lambda r: r + most if r + most < n else None, False
        )


def tree(arrays, clock):
    distance = 1
    while distance < len(arrays):
        exchange(arrays, clock, lambda r: slice(None), lambda r, d=distance: r ^ d, True)
        distance *= 2


def ring(arrays, clock):
    n, size = len(arrays), len(arrays[0]) // len(arrays)
    for step in range(2 * (n - 1)):
        late = step >= n - 1  # totals are passed on

        def piece(rank, step=step):
            k = (rank - step) % n
            return slice(k * size, (k + 1) * size)

        exchange(arrays, clock, piece, lambda r: (r + 1) % n, not late)


def halving(arrays, clock):
    """Halve what each rank still sums, then double what it holds: (first, end) of its numbers."""
    held, halves = [(0, len(arrays[0]))] * len(arrays), []
    distance = len(arrays) // 2
    while distance:
        kept, given = [], []
        for rank, (low, high) in enumerate(held):
            parts = (low, (low + high) // 2), ((low + high) // 2, high)
            kept.append(parts[bool(rank & distance)])
            given.append(parts[not rank & distance])
        swap(arrays, clock, given, distance, added=True)
        halves.append(held)
        held, distance = kept, distance // 2
    distance = 1
    for wider in reversed(halves):
        swap(arrays, clock, held, distance, added=False)
        held, distance = wider, 2 * distance


def swap(arrays, clock, pieces, distance, added):
    exchange(arrays, clock, lambda r: slice(*pieces[r]), lambda r: r ^ distance, added)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 6, 8, 13, 16])
@pytest.mark.parametrize("name", list(cost.SUMS))
def test_the_formulas_equal_the_work_of_simulated_sums(name, ranks):
    rng = np.random.default_rng(ranks)
    arrays = [rng.integers(-9, 9, 16 * 3 * 5 * 13).astype(float) for _ in range(ranks)]
    total, clock = sum(arrays), Clock(ranks)
    if name == "ring":
        ring(arrays, clock)
    else:
        folded(arrays, clock, {"tree": tree, "halving": halving}[name])
    assert all((array == total).all() for array in arrays)
    assert cost.SUMS[name](ranks, total.nbytes) == pytest.approx(tuple(clock.longest()))


def test_the_time_of_a_sum_is_that_computed_by_hand():
    link = Link(latency=10, per_byte=2, per_added=1)
    assert cost.tree(4, 100) == (2, 200, 200)
    assert cost.tree(4, 100).seconds(link) == 2 * 10 + 200 * 2 + 200
    assert cost.ring(4, 100) == (6, 150, 75)
    assert cost.ring(4, 100).seconds(link) == 6 * 10 + 150 * 2 + 75
    assert cost.halving(4, 100) == (4, 150, 75)
    assert cost.tree(5, 100) == (4, 400, 300)


@pytest.mark.parametrize(("size", "name"), [(8, "tree"), (1e6, "halving")])
def test_small_arrays_are_summed_by_few_messages(size, name):
    assert cost.fastest(64, size, Link(1e-5, 1e-9, 1e-10)) == name


# ---- steps


def test_a_step_without_overlap_waits_for_the_whole_sum():
    step, link = Step([10, 50], [0.03, 0.07], 0.6), Link(1e-3, 1e-8, 0)
    assert cost.step_seconds(step, 30, 1, 1e6, link) == pytest.approx(0.05)
    assert cost.step_seconds(step, 30, 2, 1e6, link) == pytest.approx(0.05 + 1e-3 + 1e-2)
    assert step.seconds_of(1) == 0.03  # nothing is known about fewer images


def test_with_buckets_a_step_waits_for_what_the_backward_pass_does_not_hide():
    """Every bucket takes s, and the backward pass b: the wait is the longer of two chains."""
    step, size, link = Step([0, 100], [0, 1], 0.5), 1e6, Link(1e-3, 0, 0)
    for images in (1, 2, 10, 100):
        for buckets in (1, 2, 5, 20):
            s, b = 1e-3, 0.005 * images
            wait = max(s, buckets * s - b * (buckets - 1) / buckets)
            taken = cost.step_seconds(step, images, 2, size, link, buckets)
            assert taken == pytest.approx(0.01 * images + wait)


def test_fewer_images_that_took_longer_are_found_beyond_small_fluctuations():
    assert Step([1, 2, 4], [0.5, 0.48, 0.9], 0.5).out_of_order() is None
    assert Step([1, 2, 4], [0.5, 0.4, 0.9], 0.5).out_of_order() == (1, 2)
    assert Step([1, 2, 4], [0.5, 0.7, 0.46], 0.5).out_of_order() == (2, 4)
    assert Step([1], [0.5], 0.5).out_of_order() is None


# ---- fits


@pytest.mark.parametrize("name", list(cost.SUMS))
def test_a_fit_recovers_the_link(name):
    link, work = Link(3e-5, 2e-9, 4e-10), cost.SUMS[name]
    measured = [
        (ranks, size, work(ranks, size).seconds(link))
        for ranks in (2, 4)
        for size in (1e3, 1e5, 1e7)
    ]
    found, error = cost.fit_link(measured, link.per_added, work)
    assert found == pytest.approx(link) and error < 1e-9
    noisy = [(r, n, t * (1.1 if k % 2 else 0.9)) for k, (r, n, t) in enumerate(measured)]
    found, error = cost.fit_link(noisy, link.per_added, work)
    assert found == pytest.approx(link, rel=0.15) and 0.05 < error < 0.2


def test_a_fitted_parameter_is_never_negative():
    """Sums that are faster than the addition alone leave nothing to the bandwidth."""
    measured = [(2, size, 1e-5 + 1e-10 * size) for size in (1e3, 1e5, 1e7)]
    link, error = cost.fit_link(measured, 2e-10, cost.tree)
    assert link.per_byte == 0 and link.latency >= 0 and error > 0.1


def test_work_adds_up_over_the_parts_of_a_link():
    assert Work(1, 0, 0).seconds(Link(5, 7, 9)) == 5
    assert Work(0, 1, 0).seconds(Link(5, 7, 9)) == 7
    assert Work(0, 0, 1).seconds(Link(5, 7, 9)) == 9
