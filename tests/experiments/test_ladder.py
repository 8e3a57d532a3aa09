"""ladder: each rung changes one thing and keeps the changes above it."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from minicaps.experiments import __main__ as command
from minicaps.experiments import equal, ladder
from minicaps.experiments.settings import written_out
from minicaps.train.options import complete

CHANGED = [{"iterations"}, {"shared"}, {"squash"}, {"loss"}, {"reconstruction"}]


@pytest.mark.parametrize("data", ladder.SETS)
def test_neighbors_differ_in_one_choice(data):
    whole = ladder.parts(quick=False)
    rungs = [complete(written_out(whole[f"{data}, {name}"])).to_dict() for name in ladder.STEPS]
    for (one, two), changed in zip(pairwise(rungs), CHANGED, strict=True):
        assert {key for key in one if one[key] != two[key]} - {"out"} == changed
    assert whole[f"{data}, dense-cnn"]["model"] == "dense-cnn"


def test_the_best_rate_is_the_most_accurate_after_the_last_epoch(monkeypatch):
    """Of equally accurate ones, it has the lowest loss."""
    ends = {0.1: (0.8, 0.2), 0.2: (0.9, 0.5), 0.3: (0.9, 0.4), 0.4: (0.9, 0.6), 0.5: (0.7, 0.1)}
    best_before = {"validation_accuracy": 1.0, "validation_loss": 0.0}

    def history(folder):
        accuracy, loss = ends[float(folder)]
        return [best_before, {"validation_accuracy": accuracy, "validation_loss": loss}]

    monkeypatch.setattr(equal, "_history", history)
    assert equal.best_rate(str, ends) == (0.3, "0.3")


@pytest.mark.slow
def test_all_rungs_are_measured_and_drawn(monkeypatch):
    monkeypatch.setattr(ladder, "DATA", "strokes")
    whole = ladder.parts(quick=True)
    short = {"validation": 10, "batch_size": 10, "limit": 40, "learning_rate": [0.01, 1e-9]}
    monkeypatch.setattr(ladder, "parts", lambda quick: {p: o | short for p, o in whole.items()})
    assert command.main(["ladder", "--quick", "--device", "cpu"]) == 0
    folder = Path("runs/experiments/ladder-quick")
    report = json.loads((folder / "ladder.json").read_text())
    assert [row[0] for row in report["table"][1:]] == [*ladder.STEPS, "dense-cnn"]
    assert all("–" not in row[1:4] for row in report["table"][1:])
    entries = json.loads((folder / "ladder/seed-0.json").read_text())
    for part, entry in entries.items():
        name = part.replace(", ", "-").replace(" ", "-")
        tried = {rate: folder / f"{name}-{rate}-seed-0" for rate in short["learning_rate"]}
        assert entry["figures"]["rate"] == equal.best_rate(tried.get, tried)[0]
    assert len(report["paired"]) == 1 + 2 * len(ladder.STEPS)
    assert (folder / "ladder.png").stat().st_size > 10_000
