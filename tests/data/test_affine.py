"""Test the rotation, shear, scaling and translation of digits."""

import numpy as np
import pytest
from scipy.ndimage import affine_transform

from minicaps.data import Split, affine


def split(n=3, height=28, width=28, channels=1):
    images = np.random.default_rng(0).random((n, channels, height, width), np.float32)
    return Split(images, np.arange(n) % 10)


def test_a_picture_by_hand():
    """Double the width of a pixel at (−½, −½): its light falls where x/2 is within 1 of −½."""
    image = np.array([[1.0, 0], [0, 0]], np.float32)[None, None]
    found = affine.transformed(image, np.diag([2.0, 1])[None], np.zeros((1, 2)), size=4)
    # columns at x = −1.5 … 1.5 read at −0.75, −0.25, 0.25, 0.75: 0.25, 0.25, 0.75, 1.25 from −½
    row = [0.75, 0.75, 0.25, 0]
    np.testing.assert_allclose(found[0, 0], [[0] * 4, row, [0] * 4, [0] * 4])


@pytest.mark.parametrize(("height", "width", "channels"), [(28, 28, 1), (9, 14, 2)])
def test_against_an_independent_implementation(height, width, channels):
    images = split(2, height, width, channels).images
    random = np.random.default_rng(1)
    matrices = np.eye(2) + random.normal(0, 0.3, (2, 2, 2))
    moves = random.uniform(-4, 4, (2, 2))
    found = affine.transformed(images, matrices, moves, size=31)
    for k, (matrix, move) in enumerate(zip(matrices, moves, strict=True)):
        back = np.linalg.inv(matrix)[::-1, ::-1]  # of (row, column)
        offset = np.array([height - 1, width - 1]) / 2 - back @ (15 + move[::-1])
        for channel in range(channels):
            wanted = affine_transform(
                images[k, channel], back, offset, (31, 31), order=1, mode="grid-constant"
            )
            np.testing.assert_allclose(found[k, channel], wanted, atol=1e-5)


def test_rotation_is_clockwise_as_seen():
    np.testing.assert_allclose(affine.rotation([90])[0] @ [1, 0], [0, 1], atol=1e-12)  # down


def test_digits_that_are_only_moved_are_whole():
    whole = split(50)
    found = affine.changed(whole, ()).images
    places = set()
    for image, moved in zip(whole.images, found, strict=True):
        rows, columns = np.flatnonzero(moved[0].any(axis=1)), np.flatnonzero(moved[0].any(axis=0))
        places.add((rows[0], columns[0]))
        np.testing.assert_array_equal(
            moved[0, rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1], image[0]
        )
    assert {0, 12} <= {row for row, _ in places} <= set(range(13))
    assert {0, 12} <= {column for _, column in places} <= set(range(13))


def test_digits_that_are_moved_far_are_moved_at_least_so_far():
    found = affine.changed(split(200, 20, 20), (), least=7, most=10).images[:, 0]
    moves = np.stack([found.any(axis=k).argmax(axis=1) - 10 for k in (1, 2)])
    assert set(np.abs(moves).max(axis=0)) == {7, 8, 9, 10}
    assert np.abs(moves).min() == 0
    with pytest.raises(ValueError, match="no translation of at least 7 and at most 6 pixels"):
        affine.changed(split(), (), least=7)


def moments(image):
    """Compute the center (x, y) and the second moments of the brightness."""
    y, x = np.mgrid[: image.shape[0], : image.shape[1]]
    points = np.stack([x.ravel(), y.ravel()])
    middle = np.average(points, axis=1, weights=image.ravel())
    return middle, np.cov(points, aweights=image.ravel())


def test_each_kind_changes_what_it_says(monkeypatch):
    """Check the moments M S Mᵀ of a transformed bright bar, 4 pixels wide and 12 high."""
    bar = np.zeros((1, 1, 28, 28), np.float32)
    bar[0, 0, 8:20, 12:16] = 1
    one = Split(bar, np.array([1]))
    before = moments(bar[0, 0])[1]
    fixed = {"rotation": (20, 20), "shear": (-0.2, -0.2), "scale": (1.2, 1.2)}
    monkeypatch.setattr(affine, "RANGES", fixed)
    angle = np.radians(20)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    shear = np.array([[1, -0.2], [0, 1]])
    for kinds, matrix in (
        (("rotation",), turn),
        (("shear",), shear),
        (("scale",), 1.2 * np.eye(2)),
        (("rotation", "shear", "scale"), turn @ shear * 1.2),
    ):
        after = moments(affine.changed(one, kinds).images[0, 0])[1]
        np.testing.assert_allclose(after, matrix @ before @ matrix.T, atol=0.5)


def test_no_pictures_and_unknown_kinds():
    assert affine.changed(split(0, channels=3)).images.shape == (0, 3, 40, 40)
    with pytest.raises(ValueError, match=r"unknown kinds .'zoom'.: choose from rotation, shear"):
        affine.changed(split(), ("zoom", "scale"))


def test_blocks_make_no_difference(monkeypatch):
    whole = affine.changed(split(7, 6, 8)).images
    monkeypatch.setattr(affine, "BLOCK", 3)
    assert np.array_equal(affine.changed(split(7, 6, 8)).images, whole)


def test_what_is_drawn_depends_on_the_seed_alone():
    whole = split(5)
    first, again, other = (affine.changed(whole, seed=seed).images for seed in (1, 1, 2))
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    assert first.shape == (5, 1, 40, 40) and first.dtype == np.float32
    assert first.min() >= 0 and first.max() <= 1
