"""samples: repeated shares of the training set, and a tiny run."""

import json
from pathlib import Path

import numpy as np
import pytest

from minicaps.data import Split
from minicaps.experiments import __main__ as command
from minicaps.experiments import samples


def numbered(n):
    images = np.arange(n, dtype=np.float32).reshape(n, 1, 1, 1) / n
    return Split(images, np.arange(n) % 2)


def test_a_share_is_repeated_and_never_held_out():
    whole = samples.Repeated("x", numbered(28), numbered(2), ("a", "b"), share=10)
    training, held_out = whole.cut_validation(5, seed=1)
    assert len(training) == 23 and len(held_out) == 5
    which, times = np.unique(training.images, return_counts=True)
    assert len(which) == 2 and list(times) == [12, 11]
    assert not set(which) & set(held_out.images.ravel())
    everything, same = samples.Repeated("x", numbered(28), numbered(2), ("a", "b")).cut_validation(
        5, seed=1
    )
    assert np.array_equal(same.images, held_out.images)
    assert len(np.unique(everything.images)) == 23
    # a smaller share is a part of a larger one
    assert list(which) == list(everything.images[:2].ravel())


def test_pictures_in_a_rectangle():
    images = np.arange(1, 4).repeat(2).reshape(3, 1, 2)
    np.testing.assert_array_equal(samples.mosaic(images), [[1, 1, 2, 2], [3, 3, 0, 0]])


@pytest.mark.slow
def test_fewer_pictures_are_compared_and_drawn(monkeypatch, capsys):
    monkeypatch.setattr(samples, "DATA", "strokes")
    monkeypatch.setattr(samples, "SHARES", (10, 1))
    whole = samples.parts
    own = {"validation": 10, "epochs": 1, "batch_size": 8}
    monkeypatch.setattr(
        samples, "parts", lambda quick: {part: was | own for part, was in whole(quick).items()}
    )
    assert command.main(["samples", "--quick", "--device", "cpu"]) == 0
    folder = Path("runs/experiments/samples-quick")
    report = json.loads((folder / "samples.json").read_text())
    rows = {row[0]: row[1] for row in report["table"]}
    assert rows == {"": "pictures", "capsules-10th": "3", "cnn-10th": "3"} | {
        "capsules": "30",
        "cnn": "30",
    }
    figures = json.loads((folder / "samples/seed-0.json").read_text())
    assert all(0 <= entry["figures"]["accuracy"] <= 1 for entry in figures.values())
    told = capsys.readouterr().out
    assert "capsules-10th" in told
    note = "Note: one in 10 training images is used, 10 times in each epoch\n"
    assert told.count(note) == 2  # of four networks
    assert (folder / "samples.png").stat().st_size > 10_000


@pytest.mark.parametrize("share", samples.SHARES)
def test_parts_are_named_by_their_share(share):
    names = {samples._named(network, share) for network in samples.equal.NETWORKS}
    assert names <= samples.parts(False).keys()
