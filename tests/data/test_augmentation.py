"""Test the random changes of training images."""

import numpy as np
import pytest

from minicaps.backend import choose_device
from minicaps.data import Split, affine
from minicaps.data.augmentation import Augmentation, brightened
from minicaps.data.augmentation import transformed as transformed_on
from minicaps.data.batches import batches, resident, shifted
from minicaps.data.images import border_color
from minicaps.runs.configuration import Options
from minicaps.train import fit

ALL = {"shift": 1, "rotate": 30, "zoom": 0.2, "flip": "both", "brightness": 0.5}
NO_SHIFT = np.zeros((2, 2), int)


def images_of(n=2, channels=1, height=9, width=9):
    return np.random.default_rng(n).random((n, channels, height, width), np.float32)


def transformed(images, matrices, offsets, fill=None):
    fill = border_color(images)[:, :, None, None] if fill is None else fill
    return transformed_on(images, matrices, offsets, fill)


def split_of(n, **shape):
    return Split(images_of(n, **shape), np.arange(n))


def same(one, other):
    return all(
        np.array_equal(a, b) for first, second in zip(one, other, strict=True)
        for a, b in zip(first, second, strict=True)
    )  # fmt: skip


# ---- what happens to the pixels


@pytest.mark.parametrize("turns", [1, 2, 3])
@pytest.mark.parametrize("side", [8, 9])
def test_quarter_turns_are_exact_and_clockwise(turns, side):
    images = images_of(2, 3, side, side) / 4  # a dark border: black comes in from outside
    found = transformed(images, affine.rotation([90 * turns] * 2), NO_SHIFT)
    np.testing.assert_allclose(found, np.rot90(images, -turns, (2, 3)), atol=1e-6)


@pytest.mark.parametrize(
    ("scale", "mirrored"), [((-1, 1), np.s_[..., ::-1]), ((1, -1), np.s_[..., ::-1, :])]
)
def test_a_mirrored_image_is_exact(scale, mirrored):
    images, matrices = images_of(2, 3, 6, 9), np.tile(np.diag(scale), (2, 1, 1))
    assert np.array_equal(transformed(images, matrices, NO_SHIFT), images[mirrored])


def test_a_shift_is_the_same_in_one_pass_with_other_changes():
    images, offsets = images_of(2) / 4, np.array([[1, -3], [0, 2]])
    found = transformed(images, np.tile(np.eye(2), (2, 1, 1)), offsets, fill=0)
    assert np.array_equal(found, shifted(images, offsets))


def test_images_are_mirrored_then_turned_then_shifted():
    images = np.zeros((1, 1, 9, 9), np.float32)
    images[0, 0, 4, 6] = 1  # two to the right of the center
    matrices = affine.rotation([90]) @ np.diag([-1, 1])  # left, then up
    found = transformed(images, matrices, np.array([[0, 3]]))
    assert np.argwhere(found[0, 0] > 0.99).tolist() == [[2, 7]]


def test_zooming_keeps_the_center():
    image = np.zeros((1, 1, 9, 9), np.float32)
    image[0, 0, 2:7, 2:7] = 0.5  # 5×5 pixels
    image[0, 0, 4, 4] = 1
    for factor, side in ((1.5, 7), (0.6, 3)):
        found = transformed(image, factor * np.eye(2)[None], NO_SHIFT[:1])[0, 0]
        assert found[4, 4] == 1
        assert (found[4] >= 0.25).sum() == (found[:, 4] >= 0.25).sum() == side
        np.testing.assert_allclose(found, found[::-1, ::-1], atol=1e-6)


def test_images_of_any_shape_are_transformed_as_by_scipy():
    from scipy.ndimage import affine_transform

    images, offsets = images_of(2, 2, 7, 12) / 4, np.array([[1, 2], [-2, 0]])
    matrices = np.eye(2) + np.random.default_rng(1).normal(0, 0.3, (2, 2, 2))
    found = transformed(images, matrices, offsets, fill=0)
    for image, matrix, offset, ours in zip(images, matrices, offsets, found, strict=True):
        back, middle = np.linalg.inv(matrix)[::-1, ::-1], np.array([3, 5.5])  # (row, column)
        start = middle - back @ (middle + offset)
        for channel, our in zip(image, ours, strict=True):
            wanted = affine_transform(channel, back, start, order=1, mode="grid-constant")
            np.testing.assert_allclose(our, wanted, atol=1e-6)


@pytest.mark.parametrize("color", [(0.0,), (1.0,), (0.9, 0.6, 0.7)])
def test_the_ground_goes_on_outside_the_image(color):
    images = np.broadcast_to(np.array(color, np.float32)[:, None, None], (1, len(color), 9, 9))
    images = images.copy()
    images[:, :, 3:6, 3:6] = 0.5
    found = transformed(images, 0.6 * affine.rotation([30]), np.array([[2, 2]]))
    edges = found[..., [0, 1, 8], :]
    np.testing.assert_allclose(edges, np.broadcast_to(images[..., :1, :1], edges.shape), atol=1e-6)


def test_brightness_keeps_black_black_and_stops_at_white():
    images = np.array([[0, 0.25, 0.5, 1]] * 2, np.float32)[:, None, None]
    found = brightened(images, np.array([1.5, 0.5]))
    assert found[:, 0, 0].tolist() == [[0, 0.375, 0.75, 1], [0, 0.125, 0.25, 0.5]]
    assert found.dtype == np.float32


# ---- what is drawn


def test_what_is_drawn_fills_its_range():
    draw = Augmentation(rotate=180, zoom=0.2, brightness=0.5).draw
    matrices, factors = draw(4000, np.random.default_rng(0))
    angles = np.degrees(np.arctan2(matrices[:, 1, 0], matrices[:, 0, 0]))
    sizes = np.sqrt(np.linalg.det(matrices))
    for values, low, high in ((angles, -180, 180), (sizes, 0.8, 1.2), (factors, 0.5, 1.5)):
        assert low <= values.min() and values.max() <= high
        shares = np.histogram(values, 4, (low, high))[0] / 4000
        np.testing.assert_allclose(shares, 0.25, atol=0.03)
    assert abs(np.corrcoef([angles, sizes, factors]) - np.eye(3)).max() < 0.05


@pytest.mark.parametrize(
    ("flip", "shares"),
    [("none", (0, 0)), ("horizontal", (0.5, 0)), ("vertical", (0, 0.5)), ("both", (0.5, 0.5))],
)
def test_half_of_the_images_are_mirrored_along_each_axis(flip, shares):
    matrices, _ = Augmentation(flip=flip).draw(4000, np.random.default_rng(0))
    mirrored = np.diagonal(matrices, axis1=1, axis2=2) < 0
    np.testing.assert_allclose(mirrored.mean(axis=0), shares, atol=0.03)
    if flip == "both":
        assert abs(mirrored.all(axis=1).mean() - 0.25) < 0.03


def test_one_change_leaves_the_others_as_they_were():
    def drawn(**ranges):
        return Augmentation(**ranges).draw(9, np.random.default_rng(0))

    assert np.array_equal(drawn(rotate=20)[0], drawn(rotate=20, brightness=0.5)[0])
    assert np.array_equal(drawn(brightness=0.5)[1], drawn(**ALL)[1])


# ---- batches


def test_ranges_of_zero_change_nothing():
    plain = list(batches(split_of(20), 8, seed=3))
    off = {"rotate": 0, "zoom": 0.0, "flip": "none", "brightness": 0}
    assert same(batches(split_of(20), 8, seed=3, shift=0, **off), plain)
    moved = list(batches(split_of(20), 8, seed=3, shift=2))
    assert same(batches(split_of(20), 8, seed=3, shift=2, **off), moved)


@pytest.mark.parametrize("name", ALL)
def test_each_change_differs_in_each_batch_and_epoch(name):
    split = Split(np.repeat(images_of(1), 40, axis=0), np.zeros(40, np.int64))
    images = [x for epoch in (0, 1) for x, _ in batches(split, 20, seed=0, epoch=epoch,
                                                        **{name: ALL[name]})]  # fmt: skip
    assert all(not np.array_equal(images[i], images[j]) for i in range(4) for j in range(i))
    assert all(x.dtype == np.float32 and x.min() >= 0 and x.max() <= 1 for x in images)


def test_multi_label_images_keep_their_labels():
    labels = np.random.default_rng(0).integers(0, 2, (20, 3), dtype=np.uint8)
    split = Split(images_of(20), labels)
    for (_, plain), (images, kept) in zip(
        batches(split, 8, seed=1), batches(split, 8, seed=1, **ALL), strict=True
    ):
        assert np.array_equal(kept, plain) and len(images) == len(kept)


@pytest.mark.parametrize("light", [False, True])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_device_makes_the_same_batches(strict_cupy, channels, light):
    images = images_of(23, channels, 8, 11) / 4
    split = Split(1 - images if light else images, np.arange(23))
    there = resident(split, choose_device("gpu"))
    made = list(batches(there, 4, seed=3, epoch=2, **ALL))
    assert not strict_cupy.host_syncs
    assert same([(x.get(), y.get()) for x, y in made], batches(split, 4, seed=3, epoch=2, **ALL))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rotate": 181}, "rotate must be 0 to 180 degrees, got 181"),
        ({"zoom": 1.0}, "zoom must be at least 0 and below 1, got 1.0"),
        ({"brightness": -0.1}, "brightness must be at least 0 and below 1, got -0.1"),
        ({"brightness": float("nan")}, "got nan"),
        ({"flip": "left"}, "flip must be one of none, horizontal, vertical, both, got 'left'"),
        ({"zoom": 0.1, "seed": None}, r"zoom=0\.1 requires random numbers: give a seed"),
    ],
)
def test_values_out_of_range_are_refused_at_the_call(options, message):
    with pytest.raises(ValueError, match=message):
        batches(split_of(9), 4, **{"seed": 0} | options)


# ---- options


def test_an_older_run_has_no_new_augmentation():
    assert Options.from_dict({"data": "mnist", "shift": 2}).data.augmentation == {"shift": 2}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rotate": 200}, "rotate: must be a number of at least 0 and at most 180, not '200'"),
        ({"zoom": 1}, "zoom: must be a number of at least 0 and below 1, not '1'"),
        ({"flip": "up"}, "flip: invalid choice: 'up'"),
        ({"shift": 21}, "shift must be 0 to 20 pixels for these images, got 21"),
    ],
)
def test_fit_names_the_option_as_in_python(options, message):
    images, labels = images_of(12, 1, 21, 21), np.arange(12) % 2
    with pytest.raises(ValueError, match=message):
        fit(images, labels, epochs=1, validation=0, quiet=True, **options)
