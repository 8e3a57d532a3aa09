"""What the experiments print and draw, of figures that are made up."""

import importlib
from pathlib import Path

import made_up
import pytest
from tiny_experiments import few  # noqa: F401
from tiny_runs import tiny  # noqa: F401

from minicaps.backend import choose_device
from minicaps.experiments import __main__ as command
from minicaps.experiments import lab
from minicaps.training import StopRequest

NETWORKS_DRAWN = {"adversarial", "dimensions", "overlap"}


def module(name):
    return importlib.import_module(f"minicaps.experiments.{name}")


@pytest.mark.parametrize("name", sorted(set(command.NAMES) - NETWORKS_DRAWN))
@pytest.mark.filterwarnings("error")
def test_networks_without_any_error_are_drawn(name, monkeypatch):
    """Which a logarithmic axis has no place for."""
    monkeypatch.setattr(lab, "QUICK_TRAINING", 800)
    if name in ("affine", "samples"):
        monkeypatch.setattr(module(name), "DATA", "strokes")
    there = lab.Lab(Path("runs"), True, choose_device("cpu"), None, StopRequest())
    parts = module(name).parts(True)
    module(name).draw(made_up.results(name, parts, right=1.0), Path("one.png"), there)
    assert Path("one.png").stat().st_size > 10_000
