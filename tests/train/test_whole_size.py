"""The network sees all of the images whose size is chosen; of other sizes, a note tells the rest.

The network of these tests sees sides of 13 + 4k pixels.
"""

import json
from contextlib import contextmanager

import numpy as np
import pytest
from tiny_runs import go_on, run, saved, summary

from minicaps.runs import load_model
from minicaps.train import fit

UNSEEN = "the network does not see"


def written(name, *size):
    """Write 30 images of three classes to a file, and return its path."""
    images = np.random.default_rng(0).integers(0, 256, (30, *size)).astype(np.uint8)
    np.savez(name, images=images, labels=np.arange(30) % 3)
    return name


def trained(path, *options, out="run"):
    """Train on 24 images; return the size of the network's images, and the notes."""
    folder = run("--data", path, "--limit", "24", *options, out=out)
    size = saved(folder)[1]["model"]["input_shape"][1:]
    assert summary(folder)["options"]["size"] == size
    return size, "\n".join(summary(folder)["notes"])


def test_an_automatic_size_is_seen_whole():
    size, notes = trained(written("cats.npz", 40, 56))
    assert size == [21, 29] and UNSEEN not in notes
    assert "images of 40×56 pixels (height × width) are resized to 21×29, which the" in notes


@pytest.mark.parametrize(
    ("model", "size"),
    [("dense-cnn", [21, 29]), ("matrix-capsnet", [21, 29]), ("capsule-cnn", [20, 28])],
)
def test_it_depends_on_the_network(model, size):
    assert trained(written("cats.npz", 40, 56), "--model", model)[0] == size


def test_a_size_that_is_given_stays_and_a_note_names_what_is_unseen():
    path = written("cats.npz", 40, 56)
    size, notes = trained(path, "--size", "22x28")
    assert size == [22, 28]
    assert (
        "the network does not see the last row and the last 3 columns of images of 22×28 pixels,"
        " which the strides of its convolutions leave over; it sees images of --size 25x29 whole"
    ) in notes
    size, notes = trained(path, "--size", "21x29", out="whole")
    assert size == [21, 29] and UNSEEN not in notes
    size, notes = trained(path, "--size", "61x62", out="large")  # 1 of 62 columns
    assert size == [61, 62] and UNSEEN not in notes


def test_built_in_images_stay_and_are_told_only_if_their_size_is_given():
    for size, told in (((), False), (("--size", "28"), True)):
        folder = run(*size, out=f"run{told}")
        assert saved(folder)[1]["model"]["input_shape"] == [1, 28, 28]
        assert any(UNSEEN in note for note in summary(folder)["notes"]) is told


def test_composed_images_keep_their_size():
    folder = run("--data", written("cats.npz", 40, 40), "--limit", "24", "--compose", "2")
    assert summary(folder)["options"]["size"] == [28, 28]


def test_fit_chooses_the_same_size():
    images = np.random.default_rng(0).random((12, 40, 56), np.float32)
    options = {"epochs": 1, "quiet": True, "reconstruction": 0}
    model = fit(images, np.arange(12) % 2, **options)
    assert model.config["input_shape"] == [1, 21, 29]
    assert len(model.predict(images)) == 12


# ---- runs from before sizes were enlarged


@contextmanager
def older_version():
    """Choose sizes without enlarging them, as older versions did."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("minicaps.models.base.whole", lambda side, *_: side)
        yield


def test_a_run_that_is_resumed_keeps_its_size():
    path = written("cats.npz", 40, 56)
    with older_version():
        assert trained(path)[0] == [20, 28]
    go_on("run", "--epochs", "2")
    assert saved("run")[1]["model"]["input_shape"] == [1, 20, 28]
    assert load_model("run").config["input_shape"] == [1, 20, 28]
    assert trained(path, out="new")[0] == [21, 29]


def test_the_runs_that_are_left_of_several_seeds_have_the_size_of_the_first():
    path = written("cats.npz", 40, 56)
    with older_version():
        folder = run("--data", path, "--limit", "24", "--seeds", "2")
    assert json.loads((folder / "config.json").read_text())["options"]["size"] == "auto"
    go_on(folder, "--seeds", "3")
    assert [summary(folder / f"seed-{k}")["options"]["size"] for k in range(3)] == [[20, 28]] * 3


def test_a_run_that_starts_from_another_has_its_size():
    path = written("cats.npz", 40, 56)
    with older_version():
        assert trained(path, out="first")[0] == [20, 28]
    assert trained(path, "--start-from", "first", out="second")[0] == [20, 28]
    assert trained(path, out="third")[0] == [21, 29]
    assert trained(path, "--start-from", "third", out="fourth")[0] == [21, 29]
