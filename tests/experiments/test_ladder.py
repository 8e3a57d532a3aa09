"""ladder: each rung changes one thing and keeps the changes above it."""

import json
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from minicaps.backend import choose_device
from minicaps.cli.signals import StopRequest
from minicaps.data import affine
from minicaps.experiments import __main__ as command
from minicaps.experiments import equal, ladder
from minicaps.experiments.lab import Lab
from minicaps.experiments.settings import written_out
from minicaps.models import build
from minicaps.storage import InUse
from minicaps.train.options import complete

CAPSULES = {"model", "iterations", "routing", "squash", "shared"}
CHANGED = [{"iterations"}, {"squash"}, CAPSULES, {"loss"}, {"reconstruction"}]


@pytest.mark.parametrize("data", ladder.SETS)
def test_neighbors_differ_in_one_choice(data):
    whole = ladder.parts(quick=False)
    rungs = {
        name: complete(written_out(whole[f"{data}, {name}"])).to_dict() for name in ladder.NAMES
    }

    def changed(one, two):
        return {key for key in rungs[one] if rungs[one][key] != rungs[two][key]} - {"out"}

    for (one, two), choice in zip(pairwise(ladder.STEPS), CHANGED, strict=True):
        assert changed(one, two) == choice
    assert changed("one iteration", "shared matrices") == {"shared"}
    foot = whole[f"{data}, no decoder"]
    plain = {key: foot[key] for key in foot if key not in ("loss", "reconstruction")}
    defaults = complete(written_out(plain)).to_dict() | {"reconstruction": 0.0}  # from None
    assert foot["model"] == "dense-cnn" and rungs["no decoder"] == defaults


def test_the_foot_of_the_ladder_has_as_many_parameters_as_the_rung_above():
    """Apart from the last linear layer and the biases of the hidden one."""
    rung = build("capsnet", (1, 28, 28), 10, preset="paper", decoder=False)
    foot = build("dense-cnn", (1, 28, 28), 10, preset="paper")
    more = 160 + 160 * 10 + 10
    assert foot.number_of_parameters() - rung.number_of_parameters() == more


def test_the_best_rate_is_the_most_accurate_after_the_last_epoch(monkeypatch):
    """Of equally accurate rates, the one with the lowest loss wins."""
    ends = {0.1: (0.8, 0.2), 0.2: (0.9, 0.5), 0.3: (0.9, 0.4), 0.4: (0.9, 0.6), 0.5: (0.7, 0.1)}

    def history(folder):  # a better epoch came before the last one
        accuracy, loss = ends[float(folder)]
        return {"validation_accuracy": [1.0, accuracy], "validation_loss": [0.0, loss]}

    monkeypatch.setattr(equal, "history", history)
    scores = {rate: (accuracy, -loss) for rate, (accuracy, loss) in ends.items()}
    assert equal.best_rate(str, list(ends)) == (0.3, scores)
    assert equal.best_rate(str, list(ends), lambda folder: -float(folder))[0] == 0.1
    assert equal.best_rate(None, [0.1]) == (0.1, {})  # nothing to choose


def test_other_rates_are_trained_while_one_is_in_use():
    tried = []

    def train(rate):
        tried.append(rate)
        if rate == 0.2:
            raise InUse("another process trains it")

    with pytest.raises(InUse):
        equal.best_rate(train, [0.1, 0.2, 0.3], float)
    assert tried == [0.1, 0.2, 0.3]


@pytest.mark.slow
def test_all_rungs_are_measured_and_drawn(monkeypatch):
    monkeypatch.setattr(ladder, "DATA", "strokes")
    whole = ladder.parts(quick=True)
    short = {"validation": 10, "batch_size": 10, "limit": 40, "learning_rate": [0.01, 1e-9]}
    monkeypatch.setattr(ladder, "parts", lambda quick: {p: o | short for p, o in whole.items()})
    assert command.main(["ladder", "--quick", "--device", "cpu"]) == 0
    folder = Path("runs/experiments/ladder-quick")
    report = json.loads((folder / "ladder.json").read_text())
    assert [row[0] for row in report["table"][1:]] == [*ladder.NAMES]
    assert all("–" not in row[1:5] for row in report["table"][1:])
    entries = json.loads((folder / "ladder/seed-0.json").read_text())
    lab = Lab(folder, True, choose_device("cpu"), None, StopRequest())
    _, held_out = lab.data("strokes", 0, short["limit"]).cut_validation(short["validation"], 0)
    moved = affine.changed(held_out, (), seed=0)

    def on_moved(run):
        return lab.accuracy(lab.model(run / "last.npz"), moved)

    chosen = set()
    for part, entry in entries.items():
        name = part.replace(", ", "-").replace(" ", "-")
        tried = {rate: folder / f"{name}-{rate}-seed-0" for rate in short["learning_rate"]}
        score = equal.in_the_end if part.startswith("mnist") else on_moved
        figures = entry["figures"]
        chosen.add(f"{name}-{figures['rate']}-seed-1")
        assert figures["rate"] == equal.best_rate(tried.get, [*tried], score)[0]
        assert {*figures["searched"]} == {*map(str, tried)}
        assert len(figures["history"]["train_loss"]) == 1
        if part.startswith("affine"):
            assert figures["accuracy"] == figures["affine"]
            for kind in ("moved", "far", "affine"):
                wrong = len(figures["wrong"][kind].split())
                assert figures[kind] == pytest.approx(1 - wrong / figures["tested"])
    assert len(report["paired"]) == 1 + (1 + 3) * (len(ladder.COMPARED) // 2)
    assert (folder / "ladder.png").stat().st_size > 10_000

    for network in folder.glob("*-seed-0"):  # as on another machine, which has the results only
        shutil.rmtree(network)
    assert command.main(["ladder", "--quick", "--device", "cpu", "--seeds", "2"]) == 0
    assert {network.name for network in folder.glob("*-seed-*")} == chosen
