"""Test the detection of backgrounds, the centering of ink, and the names of image files."""

import numpy as np
import pytest
from commands import run_data
from PIL import Image

from minicaps.data import load
from minicaps.data.images import (
    background,
    centre,
    file_names,
    fit,
    has_light_border,
    read_picture,
    write_picture,
)

RNG = np.random.default_rng(0)


def crosses(n, size=(20, 24), ground=0.0, channels=1):
    """Draw images of a cross; ink and background differ equally from gray."""
    images = np.full((n, channels, *size), ground, np.float32)
    images[:, :, 8:11, 4:18] = images[:, :, 3:17, 9:12] = 1 - ground
    return images


@pytest.mark.parametrize(("ground", "name"), [(0, "dark"), (0.4, "dark"), (0.9, "light")])
def test_background(ground, name):
    assert background(crosses(7, ground=ground)) == name
    assert background(crosses(1, ground=ground, channels=3)) == name


def test_background_of_both_kinds():
    dark, light = crosses(10), crosses(10, ground=1)
    assert background(np.concatenate([dark, light])) == "mixed"
    assert background(np.concatenate([dark, light[:1]])) == "dark"
    assert background(np.concatenate([light, dark[:1]])) == "light"


@pytest.mark.parametrize("size", [(40, 24), (20, 60), (9, 9)])
def test_padding_does_not_change_the_background(size):
    """Neither the color of the border nor the zeros of older versions."""
    for ground, name in ((0, "dark"), (1, "light")):
        for fill in (None, 0):
            images = [fit(image, size, fill=fill) for image in crosses(3, ground=ground)]
            assert background(np.array(images)) == name


@pytest.mark.slow
def test_background_of_what_is_known():
    images = load("strokes", limit=600).train.images
    assert background(images) == "dark" and background(1 - images) == "light"
    assert background(np.zeros((2, 1, 5, 5), np.float32)) == "dark"  # empty


def test_a_light_border():
    assert not has_light_border(crosses(1)[0])
    assert has_light_border(crosses(1, ground=1)[0])
    assert has_light_border(np.full((1, 1, 1), 0.8))
    touching = np.zeros((1, 9, 9))
    touching[0, :, 4] = 1  # ink reaches both ends
    assert not has_light_border(touching)


# ---- ink in the middle


@pytest.mark.parametrize("channels", [1, 3])
def test_centred_ink_fills_as_much_as_mnist_s(channels):
    picture = np.zeros((channels, 100, 150), np.float32)
    picture[:, 70:90, 10:20] = 1
    centred = centre(picture, (28, 28))
    assert centred.shape == (channels, 28, 28) and centred.dtype == np.float32
    expected = np.zeros((28, 28))
    expected[4:24, 9:19] = 1  # 20 high, 10 wide, centered at 13.5
    for plane in centred:
        np.testing.assert_allclose(plane, expected, atol=1e-6)


def test_the_centre_of_mass_is_in_the_middle():
    picture = np.zeros((1, 200, 200), np.float32)
    picture[0, 20:140, 30:60] = picture[0, 120:140, 30:130] = 1  # an L: heavier at one corner
    mass = centre(picture, (28, 36))[0]
    rows, columns = np.indices(mass.shape)
    middle = (rows * mass).sum() / mass.sum(), (columns * mass).sum() / mass.sum()
    assert abs(middle[0] - 13.5) <= 0.5 and abs(middle[1] - 17.5) <= 0.5


@pytest.mark.slow
def test_what_is_centred_hardly_moves_again():
    images = load("strokes", limit=20).train.images
    twice = [centre(centre(image, (28, 28)), (28, 28)) for image in images]
    once = [centre(image, (28, 28)) for image in images]
    assert np.abs(np.array(once) - twice).mean() < 0.03


def test_ink_that_is_faint_or_missing():
    faint = crosses(1)[0] * 0.01
    np.testing.assert_allclose(
        centre(faint, (28, 28)), centre(crosses(1)[0], (28, 28)) * 0.01, atol=1e-6
    )
    assert not centre(np.zeros((1, 50, 40), np.float32), (28, 28)).any()
    dot = np.zeros((1, 50, 40), np.float32)
    dot[0, 0, 0] = 1
    assert centre(dot, (28, 28)).sum() == 400  # one pixel becomes 20×20


# ---- files


def test_names_of_files():
    equal = file_names(["7"] * 20_000)
    assert equal[0] == "7" and equal[1:] == [f"7-{k}" for k in range(2, 20_001)]
    assert file_names(["é" * 245, "b" * 245]) == ["é" * 100, "b" * 200]
    assert file_names(["7", "cat", "7", "CAT", "7-2"]) == ["7", "cat", "7-2", "CAT-2", "7-2-2"]
    assert file_names(["T-shirt/top", "..", "", "a:b\\c\n", "größe"]) == [
        "T-shirt_top",
        "_",
        "_-2",
        "a_b_c_",
        "größe",
    ]


@pytest.mark.parametrize("channels", [1, 3])
def test_a_picture_that_is_written_is_read_again(tmp_path, channels):
    picture = RNG.random((channels, 12, 9), np.float32)
    write_picture(tmp_path / "a.png", picture)
    np.testing.assert_allclose(read_picture(tmp_path / "a.png"), picture, atol=0.5 / 255 + 1e-6)


@pytest.mark.slow
def test_export(tmp_path):
    done = run_data(tmp_path, "export", "strokes", "digits")
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout == "10 test images, one of each class: digits\n"
    test = load("strokes", limit=1).test
    for label in range(10):
        first = test.images[np.flatnonzero(test.labels == label)[0]]
        written = read_picture(tmp_path / "digits" / f"{label}.png")
        np.testing.assert_allclose(written, first, atol=0.5 / 255 + 1e-6)
    again = run_data(tmp_path, "export", "strokes", "digits")
    assert again.returncode == 1
    assert again.stderr == "minicaps.data: digits is not empty: choose a new or empty folder\n"


def test_export_of_pictures_of_one_s_own(tmp_path):
    for k in range(12):
        folder = tmp_path / "own" / ("a b", "c$d")[k % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(RNG.integers(0, 256, (9, 8, 3), np.uint8)).save(folder / f"{k}.png")
    done = run_data(tmp_path, "export", "own", "out")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a b.png", "c$d.png"]
    missing = run_data(tmp_path, "export", "nothing", "other")
    assert missing.returncode == 2 and "'nothing' is neither a path nor" in missing.stderr
