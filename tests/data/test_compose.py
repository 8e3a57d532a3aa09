"""Test composed images: their members, positions and reproducibility."""

import numpy as np
import pytest

from minicaps.backend import choose_device
from minicaps.data import Split, load
from minicaps.data.compose import LAYOUTS, Composed, box_overlap, compose

CLASSES = 4


def singles(n=40, side=5, classes=CLASSES):
    """Make a split whose sample i is a square of brightness (i + 1) / n in a dark frame."""
    images = np.zeros((n, 1, side, side), np.float32)
    images[:, :, 1:-1, 1:-1] = (np.arange(n)[:, None, None, None] + 1) / n
    labels = np.arange(n) % classes
    return Split(images, labels, names=np.array([f"{i}.png" for i in range(n)]))


def all_of(composed):
    return np.arange(len(composed))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("count", [2, 3, 4])
def test_members_have_different_classes_and_every_picture_is_one(layout, count):
    single = singles()
    composed = compose(single, CLASSES, count=count, layout=layout)
    classes = single.labels[composed.members]
    assert all(len(set(row)) == count for row in classes)
    assert all(i in row for i, row in enumerate(composed.members))
    assert composed.labels.dtype == np.uint8
    for row, present in zip(classes, composed.labels, strict=True):
        assert set(row) == set(np.flatnonzero(present))


def test_all_other_classes_and_pictures_are_partners_equally_often():
    composed = compose(singles(4000, side=3), CLASSES)
    together = composed.labels.T.astype(int) @ composed.labels
    off_diagonal = together[~np.eye(CLASSES, dtype=bool)]
    # 12 of 24,000 ordered pairs; the standard deviation is about 20
    assert abs(off_diagonal - 4000 / 6).max() < 100
    uses = np.bincount(composed.members.ravel(), minlength=4000)
    assert uses.min() == 1 and uses.mean() == 2 and uses.max() < 12


def test_the_place_of_a_class_says_nothing_of_it():
    composed = compose(singles(2000, side=3), CLASSES, layout="below")
    above = composed.single.labels[composed.members[:, 0]]
    assert abs(np.bincount(above) - 500).max() < 100


def test_a_class_without_pictures_is_no_partner():
    single = singles(30, classes=2)
    composed = compose(single, 5)
    assert composed.labels.shape == (30, 5)
    assert (composed.labels.sum(axis=0) == [30, 30, 0, 0, 0]).all()


@pytest.mark.parametrize(
    ("layout", "shape"), [("overlap", (1, 13, 13)), ("below", (1, 10, 5)), ("beside", (1, 5, 10))]
)
def test_layouts_place_the_members(layout, shape):
    composed = compose(singles(), CLASSES, layout=layout)
    assert composed.shape == shape
    parts = composed.parts(all_of(composed))
    assert parts.shape == (40, 2, *shape) and parts.dtype == np.float32
    for i, (members, offsets) in enumerate(zip(composed.members, composed.offsets, strict=True)):
        for place, (member, (down, right)) in enumerate(zip(members, offsets, strict=True)):
            shift = 4 if layout == "overlap" else 0
            row = shift + down + 5 * place * (layout == "below")
            column = shift + right + 5 * place * (layout == "beside")
            expected = np.zeros(shape, np.float32)
            expected[:, row : row + 5, column : column + 5] = composed.single.images[member]
            rank = np.argsort(composed.single.labels[members]).tolist().index(place)
            np.testing.assert_array_equal(parts[i, rank], expected)
    np.testing.assert_array_equal(composed.pick(all_of(composed))[0], parts.max(axis=1))


def test_offsets_reach_both_ends_and_no_further():
    offsets = compose(singles(2000, side=3), CLASSES).offsets
    assert set(np.unique(offsets)) == set(range(-4, 5))
    offsets = compose(singles(2000, side=3), CLASSES, shift=1, layout="beside").offsets
    assert set(np.unique(offsets)) == {-1, 0, 1}


def test_shifted_cells_are_larger():
    assert compose(singles(), CLASSES, layout="below", shift=2).shape == (1, 18, 9)


def test_compositions_are_repeatable_and_differ_by_epoch_and_seed():
    first, again = (compose(singles(), CLASSES, seed=3, epoch=2) for _ in range(2))
    for name in ("members", "offsets", "labels"):
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))
    np.testing.assert_array_equal(compose(singles(), CLASSES, seed=3).at(2).members, first.members)
    assert first.at(2) is first
    for other in (first.at(3), compose(singles(), CLASSES, seed=4, epoch=2)):
        assert (other.members != first.members).any() and (other.offsets != first.offsets).any()


def test_a_cut_shares_no_single_picture():
    composed = compose(singles(), CLASSES, layout="below", shift=1, seed=5)
    held_out = np.arange(40) % 5 == 0
    rest, part = composed.cut(held_out)
    assert (len(rest), len(part)) == (32, 8) and rest.shape == part.shape == composed.shape
    names = [set(split.single.names[split.members].ravel()) for split in (rest, part)]
    assert names[0].isdisjoint(names[1]) and len(names[0] | names[1]) == 40


def test_taken_pictures_are_the_same_pictures():
    composed = compose(singles(), CLASSES)
    which = np.array([7, 0, 7])
    taken = composed.take(which)
    assert isinstance(taken, Split) and taken.multi and taken.shape == composed.shape
    np.testing.assert_array_equal(taken.images, composed.pick(all_of(composed))[0][which])
    np.testing.assert_array_equal(taken.labels, composed.labels[which])
    members = composed.members[7]
    assert taken.names[0] == f"{members[0]}.png + {members[1]}.png"


def test_colour_is_composed_by_channel():
    images = np.zeros((2, 3, 2, 2), np.float32)
    images[0, 0], images[1, 2] = 0.5, 1.0
    composed = compose(Split(images, np.array([0, 1])), 2, shift=0)
    expected = np.ones((2, 2)) * np.array([0.5, 0, 1])[:, None, None]
    np.testing.assert_array_equal(composed.pick([0])[0][0], expected)


@pytest.mark.slow
def test_equal_boxes_shifted_by_up_to_4_overlap_as_computed():
    """Per axis 20 − E|a − b| of 20 pixels, a and b uniform on −4..4: (1 − 80/27/20)² = 0.7257."""
    images = np.pad(np.ones((20_000, 1, 20, 20), np.float32), ((0, 0), (0, 0), (4, 4), (4, 4)))
    composed = compose(Split(images, np.arange(20_000) % 2), 2)
    measured = box_overlap(composed.parts(np.arange(4000)))
    assert measured == pytest.approx(0.7257, abs=0.01)


def test_overlap_of_boxes_by_hand():
    parts = np.zeros((2, 2, 1, 6, 6), np.float32)
    parts[0, 0, :, 0:2, 0:3] = 1  # 6 pixels
    parts[0, 1, :, 1:3, 1:5] = 1  # 8 pixels, 2 in common: 2 / 7
    parts[1, 0, :, 0:2, 0:2] = parts[1, 1, :, 4:6, 0:2] = 1  # no overlap
    assert box_overlap(parts) == pytest.approx(1 / 7)
    parts[0, 0, 0, 5, 5] = 0.05  # no ink
    assert box_overlap(parts) == pytest.approx(1 / 7)


@pytest.mark.parametrize("count", [0, 1, 5])
def test_senseless_counts(count):
    with pytest.raises(ValueError, match=f"of {count} different classes: .* at most the 4 classes"):
        compose(singles(), CLASSES, count=count)


def test_an_unknown_layout():
    with pytest.raises(ValueError, match="'above': choose overlap, below, beside"):
        compose(singles(), CLASSES, layout="above")


def test_a_device_makes_the_same_pictures(strict_cupy):
    composed = compose(singles(), CLASSES, shift=2, layout="beside")
    there = composed.on(choose_device("gpu"))
    assert isinstance(there, Composed)
    which = np.array([3, 1, 39])
    for ours, theirs in (
        (composed.parts(which), there.parts(which)),
        (composed.pick(which)[0], there.pick(which)[0]),
    ):
        assert isinstance(theirs, strict_cupy.ndarray)
        np.testing.assert_array_equal(theirs.get(), ours)


@pytest.mark.slow
def test_strokes_overlay_keeps_most_of_both():
    data = load("strokes", limit=1000)
    parts = compose(data.train, 10).parts(np.arange(200))
    assert parts.shape == (200, 2, 1, 36, 36)
    assert 0.4 < box_overlap(parts) < 0.8
