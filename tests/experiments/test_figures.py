"""Figures of the experiments: the labels promise a spread over seeds only if one is drawn."""

import importlib
from pathlib import Path

import made_up
import pytest
from thinning import thinned

from minicaps.backend import choose_device
from minicaps.cli.signals import StopRequest
from minicaps.experiments import adversarial, affine, lab


@pytest.mark.parametrize(
    "name", thinned(["adversarial", "affine", "dynamic", "ladder", "pairs", "viewpoint"])
)
@pytest.mark.parametrize("seeds", [1, 3])
def test_a_spread_over_seeds_is_promised_where_there_are_several(name, seeds, monkeypatch):
    monkeypatch.setattr(lab, "QUICK_TRAINING", 800)
    monkeypatch.setattr(affine, "DATA", "strokes")
    monkeypatch.setattr(adversarial, "_draw_pictures", lambda *_: None)
    drawn = []
    monkeypatch.setattr(lab.Lab, "save", lambda self, figure, path: drawn.append(figure))
    module = importlib.import_module(f"minicaps.experiments.{name}")
    there = lab.Lab(Path("runs"), True, choose_device("cpu"), None, StopRequest())
    module.draw(made_up.results(name, module.parts(True), seeds), Path("one.png"), there)
    axes = drawn[0].get_axes()
    labels = [label for one in axes for label in (one.get_xlabel(), one.get_ylabel())]
    assert sum("all seeds)" in label for label in labels) == (seeds > 1)
