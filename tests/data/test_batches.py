"""Test data sets by name, the validation split, and batches that resume bit-identically."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minicaps.backend import choose_device
from minicaps.data import NAMES, Dataset, Split, load, strokes
from minicaps.data.batches import SHARE, batches, number_of_batches, resident, shifted


def split_of(n, height=5, width=6, channels=1):
    """Make a split whose sample i has label i and pixels that identify it."""
    images = np.random.default_rng(n).random((n, channels, height, width), dtype=np.float32)
    return Split(images, np.arange(n), poses=np.arange(n)[:, None])


def dataset_of(n):
    return Dataset("numbers", split_of(n), split_of(3), tuple(map(str, range(n))))


def equal(one, other):
    return len(one) == len(other) and all(
        np.array_equal(a, b) for first, second in zip(one, other, strict=True)
        for a, b in zip(first, second, strict=True)
    )  # fmt: skip


# ---- load


@pytest.mark.slow
def test_load_strokes_gives_the_drawn_samples():
    data = load("strokes", limit=1200, seed=4)
    assert data.class_names == tuple("0123456789")
    for part, n in (("train", 1200), ("test", 2000)):
        images, labels, poses = strokes.strokes(n, seed=4, part=part)
        split = getattr(data, part)
        np.testing.assert_array_equal(split.images, images)
        np.testing.assert_array_equal(split.labels, labels)
        np.testing.assert_array_equal(split.poses, poses)


@pytest.mark.slow
def test_load_strokes_by_default():
    data = load("strokes")
    assert (len(data.train), len(data.test)) == (10_000, 2_000)
    np.testing.assert_array_equal(
        data.train.take(slice(50)).images, load("strokes", limit=50).train.images
    )


def test_an_unknown_name_lists_the_names():
    with pytest.raises(ValueError, match="'mnits'") as caught:
        load("mnits")
    assert all(name in str(caught.value) for name in NAMES)


@pytest.mark.parametrize("limit", [0, -3, 10_001])
def test_senseless_limits(limit):
    with pytest.raises(ValueError, match=f"limit .*{limit:,}"):
        load("strokes", limit=limit)


def test_strokes_refuse_a_folder(tmp_path):
    with pytest.raises(ValueError, match="drawn, not read"):
        load("strokes", folder=tmp_path)


# ---- splits


@pytest.mark.parametrize(
    ("images", "labels"),
    [
        (np.zeros((2, 3, 3), np.float32), np.zeros(2, np.int64)),
        (np.zeros((2, 1, 3, 3), np.uint8), np.zeros(2, np.int64)),
        (np.zeros((2, 1, 3, 3), np.float32), np.zeros(3, np.int64)),
        (np.zeros((2, 1, 3, 3), np.float32), np.zeros(2, np.int32)),
    ],
)
def test_a_split_has_one_form(images, labels):
    with pytest.raises(ValueError, match="must be"):
        Split(images, labels)


def test_take_keeps_pictures_labels_and_poses_together():
    split = split_of(9)
    taken = split.take([7, 2])
    assert taken.labels.tolist() == [7, 2]
    assert taken.poses.tolist() == [[7], [2]]
    np.testing.assert_array_equal(taken.images, split.images[[7, 2]])


@pytest.mark.parametrize(
    ("size", "count"), [(1, 1), (13, 13), (99, 99), (0.1, 10), (0.333, 33), (0.994, 99)]
)
def test_validation_is_cut_from_the_training_samples(size, count):
    data = dataset_of(100)
    train, validation = data.cut_validation(size, seed=2)
    assert (len(train), len(validation)) == (100 - count, count)
    assert sorted([*train.labels, *validation.labels]) == list(range(100))
    for part in (train, validation):
        assert (np.diff(part.labels) > 0).all()
        np.testing.assert_array_equal(part.images, data.train.images[part.labels])
        np.testing.assert_array_equal(part.poses[:, 0], part.labels)


def test_the_seed_alone_decides_which_samples_are_cut():
    def cut(seed):
        return dataset_of(100).cut_validation(0.2, seed)[1].labels.tolist()

    assert cut(1) == cut(1)
    assert cut(1) != cut(2)
    assert cut(1) != list(range(20))


@pytest.mark.parametrize(
    "size", [0, -1, 100, 101, 0.0, -0.1, 1.0, 50.0, 0.001, 0.999, float("nan")]
)
def test_senseless_validation_sizes(size):
    with pytest.raises(ValueError, match=f"validation .*{size}"):
        dataset_of(100).cut_validation(size)


# ---- batches


@given(n=st.integers(1, 30), batch_size=st.integers(1, 12), seed=st.none() | st.integers(0, 5))
def test_every_sample_once_and_the_last_batch_kept(n, batch_size, seed):
    split = split_of(n, 2, 2)
    sizes, seen = [], []
    for images, labels in batches(split, batch_size, seed=seed):
        np.testing.assert_array_equal(images, split.images[labels])
        sizes.append(len(labels))
        seen.extend(labels.tolist())
    assert len(sizes) == number_of_batches(n, batch_size)
    assert sizes[:-1] == [batch_size] * (len(sizes) - 1)
    assert sum(sizes) == n
    assert seen == list(range(n)) if seed is None else sorted(seen) == list(range(n))


def test_the_order_depends_on_seed_and_epoch():
    def order(**key):
        return np.concatenate([labels for _, labels in batches(split_of(50), 8, **key)]).tolist()

    orders = [order(seed=seed, epoch=epoch) for seed in (0, 1) for epoch in (0, 1)] + [order()]
    assert order(seed=1, epoch=1) == orders[3]
    assert len(set(map(tuple, orders))) == 5
    assert order(seed=1, epoch=1, shift=2) == orders[3]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"seed": 3, "epoch": 2},
        {"seed": 3, "epoch": 2, "shift": 2},
        {"seed": 3, "epoch": 2, "rotate": 30, "zoom": 0.2, "flip": "both", "brightness": 0.5},
    ],
)
def test_starting_later_gives_the_same_batches(options):
    whole = list(batches(split_of(23), 4, **options))
    for start in range(len(whole) + 1):
        assert equal(list(batches(split_of(23), 4, start=start, **options)), whole[start:])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch size must be at least 1, got 0"),
        ({"start": -1}, "start .*-1"),
        ({"start": 4}, "the 3 batches of an epoch, got 4"),
        ({"shift": -1, "seed": 0}, "shift .*-1"),
        ({"shift": 5, "seed": 0}, "0 to 4 pixels .*5"),
        ({"shift": 2}, "give a seed"),
        ({"seed": -1}, "non-negative"),
    ],
)
def test_senseless_arguments_are_refused_at_the_call(options, message):
    with pytest.raises(ValueError, match=message):
        batches(split_of(9), **{"batch_size": 4} | options)


# ---- shifts


def shifted_one_by_one(images, offsets):
    moved = np.zeros_like(images)
    height, width = images.shape[2:]
    for i, (down, right) in enumerate(offsets):
        for y in range(height):
            for x in range(width):
                if 0 <= y - down < height and 0 <= x - right < width:
                    moved[i, :, y, x] = images[i, :, y - down, x - right]
    return moved


@given(st.data(), st.integers(1, 4), st.integers(1, 3), st.integers(3, 7), st.integers(3, 7))
def test_shifting_all_at_once_is_shifting_one_by_one(data, n, channels, height, width):
    images = split_of(n, height, width, channels).images
    offset = st.tuples(st.integers(-2, 2), st.integers(-2, 2))
    offsets = np.array(data.draw(st.lists(offset, min_size=n, max_size=n)))
    np.testing.assert_array_equal(shifted(images, offsets), shifted_one_by_one(images, offsets))


def test_batches_shift_by_every_offset_and_no_other():
    images = np.zeros((2000, 1, 7, 9), dtype=np.float32)
    images[:, 0, 3, 4] = 1
    split = Split(images, np.arange(2000))
    found = np.concatenate(
        [np.argwhere(x[:, 0])[:, 1:] for x, _ in batches(split, 64, seed=0, shift=2)]
    )
    offsets, counts = np.unique(found - [3, 4], axis=0, return_counts=True)
    assert offsets.tolist() == [[down, right] for down in range(-2, 3) for right in range(-2, 3)]
    assert counts.min() > 40  # the expected count of each is 80


def test_each_batch_and_epoch_has_its_own_shifts():
    images = np.zeros((40, 1, 6, 6), dtype=np.float32)
    images[:, :, 2:5, 2:5] = 1
    split = Split(images, np.zeros(40, dtype=np.int64))
    seen = [x for epoch in (0, 1) for x, _ in batches(split, 20, seed=0, epoch=epoch, shift=2)]
    assert all((seen[i] != seen[j]).any() for i in range(4) for j in range(i))


def test_the_color_of_the_border_is_shifted_in():
    """Paper stays paper and red stays red: no black bars. A black border gives zeros as before."""
    images = np.zeros((3, 3, 7, 8), np.float32)
    images[0], images[1, 0] = 0.9, 0.7
    images[:, :, 3, 3] = 0.5
    split = Split(images, np.arange(3))
    moved, which = next(batches(split, 3, seed=1, shift=2))
    for image, k in zip(moved, which, strict=True):
        assert {tuple(p) for p in image.reshape(3, -1).T} == {tuple(images[k, :, 0, 0]), (0.5,) * 3}
    zeros, _ = next(batches(split, 3, seed=1, shift=2, fill=0))  # as in older runs
    assert (zeros[which == 0] == 0).any()
    np.testing.assert_array_equal(zeros[which == 2], moved[which == 2])


def test_shifting_leaves_the_data_set_alone():
    split = split_of(12)
    before = split.images.copy()
    for images, _ in batches(split, 5, seed=0, shift=2):
        images[:] = -1
    for images, _ in batches(split, 5):
        images[:] = -1
    np.testing.assert_array_equal(split.images, before)


# ---- on a device


@pytest.mark.parametrize("shift", [0, 2])
@pytest.mark.parametrize("channels", [1, 3])
def test_batches_made_on_the_device_are_those_of_the_cpu(strict_cupy, shift, channels):
    split, key = split_of(23, channels=channels), {"seed": 3, "epoch": 2, "shift": shift}
    there = resident(split, choose_device("gpu"))
    strict_cupy.host_copies.clear()
    made = list(batches(there, 4, **key))
    indices = 2 if shift else 1  # indices and shifts of the samples
    assert strict_cupy.host_copies.total() == 6 * indices
    assert not strict_cupy.host_syncs
    for images, labels in made:
        assert isinstance(images, strict_cupy.ndarray) and isinstance(labels, strict_cupy.ndarray)
    assert equal([(x.get(), y.get()) for x, y in made], list(batches(split, 4, **key)))
    assert equal(
        [(x.get(), y.get()) for x, y in batches(there, 5)],
        list(batches(split, 5)),
    )


def test_pictures_stay_where_they_are_if_a_gpu_has_no_room(strict_cupy, monkeypatch):
    split, device = split_of(50), choose_device("gpu")
    needed = int((split.images.nbytes + split.labels.nbytes) / SHARE)
    for free, fits in ((needed, True), (needed - 1, False)):
        monkeypatch.setattr(strict_cupy.cuda.runtime, "memGetInfo", lambda free=free: (free, 2**40))
        assert (resident(split, device) is not split) == fits


def test_the_cpu_copies_no_pictures():
    split = split_of(9)
    assert resident(split, choose_device("cpu")) is split


# ---- balanced classes


def uneven(counts=(9, 3, 1)):
    """Make a split with the given number of images per class, each with pixels of its own."""
    labels = np.repeat(np.arange(len(counts)), counts)
    return Split(split_of(len(labels)).images, labels)


def drawn(split, **options):
    """Return the labels of an epoch, and the index of each of its images in the split."""
    found = list(batches(split, 4, seed=3, balance=True, **options))
    images, labels = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return labels, (images[:, None] == split.images).all(axis=(2, 3, 4)).argmax(axis=1)


def test_a_balanced_epoch_has_as_many_images_of_each_class():
    split = uneven()
    labels, which = drawn(split)
    assert sorted(np.bincount(labels)) == [4, 4, 5]
    assert np.array_equal(split.labels[which], labels)
    times = np.bincount(which, minlength=13)
    assert times[:9].max() == 1  # large class: no image twice
    assert times[9:12].min() >= 1 and np.ptp(times[9:12]) <= 1  # small class: in turn


def test_balanced_epochs_differ_and_resume_bit_identically():
    split = uneven()
    assert not np.array_equal(drawn(split)[1], drawn(split, epoch=1)[1])
    whole = list(batches(split, 4, seed=3, epoch=2, shift=1, balance=True))
    assert equal(
        list(batches(split, 4, seed=3, epoch=2, shift=1, balance=True, start=2)), whole[2:]
    )


def test_over_many_epochs_every_image_is_drawn():
    seen = set(np.concatenate([drawn(uneven(), epoch=k)[1] for k in range(20)]).tolist())
    assert seen == set(range(13))


def test_a_balanced_epoch_requires_a_seed():
    with pytest.raises(ValueError, match="balance=True requires random numbers: give a seed"):
        batches(uneven(), 4, balance=True)
