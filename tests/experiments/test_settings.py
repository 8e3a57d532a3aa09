"""A new default of the command changes no experiment and no committed result."""

import json
import shlex
from pathlib import Path

import pytest

from minicaps import models
from minicaps.experiments.settings import written_out
from minicaps.train import options as command

RESULTS = Path(__file__).parents[2] / "lessons/results"
GIVEN = [
    *({"model": name} for name in models.MODELS),
    {},
    {"data": "mnist"},
    {"data": "mnist", "compose": 2, "layout": "beside"},
    {"data": "mnist", "shift": 0, "preset": "paper"},
    {"preset": "medium"},
    {"model": "dense-cnn", "loss": "margin"},
    {"schedule": "cosine", "epochs": 3, "routing": "leaky", "update": "spherical"},
    {"model": "capsule-cnn", "learning_rate": 0.01, "loss": "cross-entropy"},
]


def options_of(given):
    flat = command.complete(given | {"out": "run"}).to_dict()
    if flat["schedule"] != "exponential":
        del flat["decay"]  # without effect
    # An experiment writes out that a switch is off; the command may leave it undecided
    return {key: value for key, value in flat.items() if value is not None and value is not False}


@pytest.mark.parametrize("given", GIVEN, ids=str)
def test_the_written_options_are_those_of_the_command(given):
    """Only the default schedule has changed since these experiments were made."""
    assert options_of(written_out(given)) == options_of({"schedule": "exponential"} | given)


@pytest.mark.parametrize("given", GIVEN, ids=str)
def test_a_new_default_changes_no_experiment(given, monkeypatch):
    before = options_of(written_out(given))
    other = {"epochs": 99, "batch_size": 7, "decay": 0.1, "validation": 0.5, "weight_decay": 1.0}
    other |= {"schedule": "constant", "optimizer": "sgd", "reconstruction": 1.0}
    monkeypatch.setattr(command, "DEFAULTS", command.DEFAULTS | other)
    monkeypatch.setattr(command, "DEFAULT_SHIFT", {"mnist": 5, "strokes": 5})
    rates = {(name, preset): 0.5 for name in models.MODELS for preset in ("medium", "small", None)}
    monkeypatch.setattr(command, "DEFAULT_LEARNING_RATE", rates)
    monkeypatch.setattr(command, "usual_loss", lambda name: "cross-entropy")
    assert options_of(given) != before
    assert options_of(written_out(given)) == before


TRAINED = sorted(path for path in RESULTS.glob("*.json") if path.stem != "scaling")  # only timed


@pytest.mark.parametrize("path", TRAINED, ids=lambda path: path.stem)
def test_a_committed_result_names_all_its_options(path):
    """So that its commands can be repeated when a default has changed."""
    result = json.loads(path.read_text())
    lines = result.get("commands") or [run["command"] for run in result["runs"]]
    assert len(result["options"]) == len(lines)
    for line, options in zip(lines, result["options"], strict=True):
        given = vars(command.make_parser().parse_args(shlex.split(line)[3:]))
        assert {key: options.get(key) for key in given} == given
        assert {"epochs", "batch_size", "learning_rate", "schedule", "shift", "loss"} <= {
            key for key, value in options.items() if value is not None
        }
