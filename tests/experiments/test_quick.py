"""A quick trial is marked wherever it could be mistaken for a result."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from minicaps.experiments import __main__ as command
from minicaps.experiments import squash
from minicaps.experiments.lab import Lab
from minicaps.plotting.canvas import new_figure


def pixels(path):
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB"), int)


@pytest.mark.slow
def test_the_picture_has_a_strip_below_all_of_it(tmp_path):
    for quick in (True, False):
        figure = new_figure(8, 2)
        figure.subplots().plot([1, 2], label="a line")
        figure.legend(loc="outside lower center")  # which would cover a text at the foot
        Lab(tmp_path, quick, None, None, None).save(figure, tmp_path / f"{quick}.png")
    quick, full = (pixels(tmp_path / f"{quick}.png") for quick in (True, False))
    assert full.shape == (240, 960, 3) and quick.shape[1:] == full.shape[1:]
    np.testing.assert_array_equal(quick[:240], full)
    strip = quick[240:]
    inked = (strip.min(axis=2) < 128).any(axis=0)
    assert (strip[:3] == 255).all() and (strip[-3:] == 255).all()
    assert 300 < np.ptp(np.flatnonzero(inked)) < 900  # a line of text, not cut off


@pytest.mark.slow
@pytest.mark.parametrize("quick", [True, False])
def test_figures_and_picture_are_marked(quick, monkeypatch, capsys):
    figures = {"accuracy": 0.9, "lengths": [0.1, 0.5, 0.9], "parameters": 7, "seconds": 60}
    monkeypatch.setattr(squash, "measure", lambda *_: figures)
    arguments = ["squash", "--quick"] if quick else ["squash", "--seeds", "1", "--out", "out"]
    assert command.main([*arguments, "--device", "cpu"]) == 0
    assert (command.QUICK in capsys.readouterr().out) == quick
    folder = Path("runs/experiments/squash-quick" if quick else "out")
    assert json.loads((folder / "squash.json").read_text())["quick"] == quick
    height = pixels(folder / "squash.png").shape[0]
    assert height > 120 * 3.8 if quick else height == 120 * 3.8
    assert command.main(["--out", str(folder)]) == 0
    assert ("| squash (quick) | " in capsys.readouterr().out) == quick
