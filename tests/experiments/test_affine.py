"""affine: epochs of equal accuracy by hand, framed digits, and a tiny run."""

import json
from pathlib import Path

import numpy as np
import pytest

from minicaps.data import Split
from minicaps.experiments import __main__ as command
from minicaps.experiments import affine, equal


def test_epochs_of_equal_accuracy_by_hand():
    """Both reach 0.9, the first between two epochs."""
    curves = {"good": [0.7, 0.88, 0.93, 0.95], "bad": [0.5, 0.8, 0.9, 0.89]}
    assert equal.epochs(curves) == {"good": 2, "bad": 3}
    assert equal.epochs({"alone": [0.1, 0.3, 0.2]}) == {"alone": 2}


def test_digits_are_framed_in_the_middle():
    split = Split(np.ones((2, 1, 28, 28), np.float32), np.zeros(2, int))
    framed = affine.framed(split).images
    assert framed.shape == (2, 1, 40, 40) and framed.sum() == 2 * 28 * 28
    assert framed[:, :, 6:34, 6:34].all()


@pytest.fixture
def short(monkeypatch):
    """Use drawn digits and two epochs; return the settings of the parts."""
    whole = affine.parts(True)
    own = {"data": "strokes", "limit": 30, "validation": 10, "epochs": 2, "batch_size": 8}
    found = {part: settings | own for part, settings in whole.items()}
    monkeypatch.setattr(affine, "DATA", "strokes")
    monkeypatch.setattr(affine, "parts", lambda quick: found)
    return found


@pytest.mark.slow
def test_it_measures_at_equal_accuracy_and_at_the_end(short, capsys):
    assert command.main(["affine", "--quick", "--device", "cpu"]) == 0
    folder = Path("runs/experiments/affine-quick")
    found = json.loads((folder / "affine/seed-0.json").read_text())
    figures = {part: entry["figures"] for part, entry in found.items()}
    curves = {part: own["held out"] for part, own in figures.items()}
    assert [len(curve) for curve in curves.values()] == [2, 2]
    for part, own in figures.items():
        assert own["epoch"] == equal.epochs(curves)[part]
        assert own["equal"].keys() == own["last"].keys() == affine.KINDS.keys()
        if own["epoch"] == 2:
            assert own["equal"] == own["last"]
    report = json.loads((folder / "affine.json").read_text())
    assert len(report["table"]) == 1 + 2 * 2 and len(report["headline"]) == 2
    assert "affNIST 79" in capsys.readouterr().out
    assert (folder / "affine.png").stat().st_size > 10_000
