"""Notes on blank images and exact copies in custom data."""

import numpy as np
from own_files import noise, npz, write

from minicaps.data import load
from minicaps.data.dataset import Split
from minicaps.data.own.remarks import remarks as remarks_on


def split(pixels, labels, names=None):
    images = np.zeros((len(pixels), 1, 2, 2), np.float32)
    images[:, 0, 0, 0] = np.divide(pixels, 10)
    return Split(images, np.array(labels), names=None if names is None else np.array(names))


def remarks(train, test, validation=None):
    return remarks_on({"train": train, "validation": validation, "test": test})


def test_distinct_images_need_no_remark():
    assert remarks(split([1, 2, 3], [0, 1, 0]), split([4, 5], [0, 1])) == ()
    assert remarks(split([1, 2], [0, 1]), split([], np.zeros(0, int))) == ()


def test_copies_are_counted_and_named():
    train = split([1, 2, 2, 2, 3, 0], [0, 1, 1, 1, 0, 1], list("abcdef"))
    test = split([1, 4, 4, 0, 3], [0, 1, 1, 0, 1], list("uvwxy"))
    assert remarks(train, test) == (
        "blank images, with one value everywhere: 2 (f, x)",
        "exact copies among the training images: 2 (b = c = d)",
        "exact copies among the test images: 1 (v = w)",
        "test images that are exact copies of training images: 2 (a = u, e = y); the test accuracy"
        " may be too high",
        "images that occur with different classes: 1 (e = y)",
    )
    assert remarks(split([1, 1], [0, 1]), split([1], [0]))[0].endswith("1 (train 0 = train 1)")


def test_the_validation_images_are_compared_too():
    train, validation = split([1, 2, 3], [0, 1, 0], list("abc")), split([3, 0], [0, 1], list("kl"))
    assert remarks(train, split([4, 3], [1, 0], list("yz")), validation) == (
        "blank images, with one value everywhere: 1 (l)",
        "validation images that are exact copies of training images: 1 (c = k); the validation"
        " accuracy may be too high",
        "test images that are exact copies of training images: 1 (c = z); the test accuracy may be"
        " too high",
        "test images that are exact copies of validation images: 1 (k = z); the test accuracy may"
        " be too high",
    )


def test_several_classes_are_compared_as_a_whole():
    flags = np.array([[1, 0], [1, 1], [1, 0]], np.uint8)
    train = split([1, 2, 1], flags, list("abc"))
    assert len(remarks(train, split([3], flags[:1], ["d"]))) == 1
    *_, last = remarks(train, split([2], flags[:1], ["d"]))
    assert last == "images that occur with different classes: 1 (b = d)"


def test_only_a_few_are_named():
    train = split([1] * 20 + [2] * 20, [0, 1] * 20, [f"{k}.png" for k in range(40)])
    first, second = remarks(train, split([], np.zeros(0, int)))
    assert first.startswith("exact copies among the training images: 38 (0.png = ")
    assert first.count("=") == 4
    assert second.startswith("images that occur with different classes: 2 (0.png = 1.png")


def test_reading_custom_data_tells_it(tmp_path):
    for k in range(12):
        write(tmp_path / f"pets/{'cat' if k % 2 else 'dog'}/{k}.png", noise(k // 2, 9, 9))
    write(tmp_path / "pets/dog/white.png", np.full((9, 9), 255, np.uint8))
    notes = "\n".join(load(str(tmp_path / "pets")).notes)
    assert "blank images, with one value everywhere: 1 (dog/white.png)" in notes
    assert "images that occur with different classes: 6 (" in notes
    for part in ("train", "val", "test"):
        for k in range(6):
            write(tmp_path / f"parts/{part}/{'cat' if k % 2 else 'dog'}/{k}.png", noise(k, 9, 9))
    assert "validation images that are exact copies of training images: 6 (" in "\n".join(
        load(str(tmp_path / "parts")).notes
    )
    images = np.repeat(noise(0, 10, 9, 9), 3, axis=0)
    path = npz(tmp_path / "a.npz", images=images, labels=np.arange(30) // 3 % 2)
    assert "test images that are exact copies of training images" in "\n".join(
        load(str(path)).notes
    )
