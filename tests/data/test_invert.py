"""Test the recognition of dark drawings on a light background, and the inversion of data sets."""

import numpy as np
import pytest
from custom_sets import make
from own_files import crosses_and_rings, npz
from sklearn.datasets import load_digits, load_sample_images

from minicaps.data import load
from minicaps.data.ink import dark_on_light, drawn

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def same_images_in_any_order(monkeypatch):
    monkeypatch.setitem(globals(), "RNG", np.random.default_rng(0))


def photographs(picture, size, count=200):
    """Crop squares of random sizes from a photograph, and reduce them to gray and to `size`."""
    gray, crops = (picture / 255).mean(axis=2).astype("f"), []
    for _ in range(count):
        side = int(RNG.integers(size, 300))
        top, left = (RNG.integers(0, length - side) for length in gray.shape)
        at = (np.arange(size) * side / size).astype(int)
        crops.append(gray[top : top + side, left : left + side][np.ix_(at, at)][None])
    return np.array(crops)


def noise(size=28, power=1.5, count=200):
    """Draw smooth random images with a spectrum like that of photographs, 1 / f^power."""
    f = np.hypot(np.fft.fftfreq(size)[:, None], np.fft.rfftfreq(size)) + 1 / size
    waves = np.fft.rfft2(RNG.normal(size=(count, 1, size, size)))
    images = np.fft.irfft2(waves / f**power, (size, size))
    images -= images.min(axis=(2, 3), keepdims=True)
    return (images / images.max(axis=(2, 3), keepdims=True)).astype("f")


# ---- recognition


@pytest.mark.parametrize("channels", [1, 3])
def test_drawings_are_recognized_in_gray(channels):
    images, _ = crosses_and_rings(20, channels=channels)
    assert dark_on_light(images) and not dark_on_light(1 - images) and drawn(1 - images)
    assert dark_on_light(0.2 + 0.6 * images)  # gray ink on gray paper
    grain = RNG.normal(0, 0.04, images[:, :1].shape)
    assert dark_on_light(np.clip(0.9 * images + grain, 0, 1))
    assert not dark_on_light(np.concatenate([images, 1 - images[:4]]))  # mixed
    assert dark_on_light(np.concatenate([images, 1 - images[:1]]))
    assert dark_on_light(np.concatenate([images, np.ones_like(images[:3])]))  # some blank
    images[3, :, :4, :4] = 0.5
    assert dark_on_light(images)
    if channels == 3:
        images[3, 0, :4, :4] = 1
        assert not drawn(images)  # one image has color


def test_letters_and_digits_are_recognized(tmp_path):
    letters = load(str(make("letters", tmp_path)), size=(14, 14)).train.images
    assert dark_on_light(letters)
    digits = (load_digits().images / 16).astype("f")[:, None]
    assert drawn(digits) and not dark_on_light(digits) and dark_on_light(1 - digits)


@pytest.mark.parametrize("size", [28, 64])
@pytest.mark.parametrize("which", [0, 1])
def test_photographs_are_not_drawings(size, which):
    crops = photographs(load_sample_images().images[which], size)
    assert not drawn(crops) and not drawn(1 - crops) and not drawn(crops**0.3)
    light = crops[[np.median(np.r_[c[0, 0], c[0, -1], c[0, :, 0]]) > 0.5 for c in crops]]
    assert not dark_on_light(light)


@pytest.mark.parametrize("power", [0, 1, 2])
def test_smooth_and_rough_noise_is_no_drawing(power):
    images = noise(power=power)
    for some in (images, images**0.3, 1 - images**3):
        assert not drawn(some)


def test_gradients_objects_on_white_and_blank_images_are_no_drawings():
    slopes = np.linspace(RNG.random(50), RNG.random(50), 28, axis=-1)
    assert not drawn(np.tile(slopes[:, None, None], (1, 1, 28, 1)).astype("f"))
    rows, columns = np.indices((28, 28)) - 13.5
    for radius in (7, 8, 11):
        objects = np.where(np.hypot(rows, columns) < radius, 0.85 * noise(), 1)
        assert not drawn(objects.astype("f"))  # a photograph cut out
    assert not drawn(np.ones((5, 1, 9, 9), "f")) and not drawn(np.ones((5, 1, 2, 2), "f"))


# ---- a whole data set


def test_all_images_of_a_set_are_inverted_or_none(tmp_path):
    images, labels = crosses_and_rings(40)
    images[:2] = 1 - images[:2]  # decided for the set, not for the image
    path = str(npz(tmp_path / "a.npz", images=images, labels=labels))
    plain, auto = load(path), load(path, invert="auto")
    assert (plain.inverted, auto.inverted) == (False, True)
    for part in ("train", "test"):
        split = getattr(auto, part)
        np.testing.assert_array_equal(split.images, 1 - getattr(plain, part).images)
        np.testing.assert_array_equal(split.names, getattr(plain, part).names)
    assert auto.notes[-1] == (
        "all images are inverted, because they show dark ink on a light background; --invert no"
        " keeps them as they are"
    )
    assert load(path, invert=True).notes[-1] == "all images are inverted"
    dark = str(npz(tmp_path / "dark.npz", images=1 - images, labels=labels))
    assert not load(dark, invert="auto").inverted
    np.testing.assert_array_equal(load(dark, invert="auto").train.images, load(dark).train.images)
    with pytest.raises(ValueError, match="invert must be True, False"):
        load(path, invert="yes")


def test_composed_drawings_keep_the_strokes_of_both(tmp_path):
    """Black on white, only what both share would be left."""
    images = np.ones((40, 1, 9, 9), "f")
    images[::2, :, 4, 2:7] = images[1::2, :, 2:7, 4] = 0  # lying and upright
    path = str(npz(tmp_path / "a.npz", images=images, labels=np.arange(40) % 2))
    for part in ("train", "test"):
        found = getattr(load(path, compose=2, invert="auto"), part).take(np.arange(5)).images
        assert (found.sum(axis=(1, 2, 3)) >= 9).all() and set(np.unique(found)) == {0, 1}
        assert found.sum(axis=(1, 2, 3)).max() == 10  # two strokes of five, which may cross
    notes = "\n".join(load(path, compose=2).notes)
    assert "only what is dark in all of them is seen" in notes
    assert "is seen" not in "\n".join(load(path, compose=2, invert="auto").notes)
    assert "is seen" not in "\n".join(load(path, compose=2, layout="beside").notes)


def test_built_in_sets_are_inverted_if_told():
    plain, inverted = load("strokes", limit=20), load("strokes", limit=20, invert=True)
    np.testing.assert_array_equal(inverted.test.images, 1 - plain.test.images)
    assert not load("strokes", limit=20, invert="auto").inverted
