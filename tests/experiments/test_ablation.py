"""ablation: one choice changes at a time, and missing data costs no other results."""

import json
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from minicaps import data
from minicaps.errors import DataError
from minicaps.experiments import __main__ as command
from minicaps.experiments import ablation, equal, ladder
from minicaps.experiments.ablation import RATES
from minicaps.train.options import complete

FOLDER = Path("runs/experiments/ablation-quick")
QUICK = ["ablation", "--quick", "--device", "cpu"]


def test_neighbours_differ_in_one_choice():
    parts = {name: complete(own).to_dict() for name, own in ablation.parts(quick=False).items()}
    for name, other, changed in (
        ("mnist, r=1", "mnist, r=3", {"iterations"}),
        ("mnist, r=3", "mnist, r=3, reconstruction", {"reconstruction"}),
        ("mnist, r=1, reconstruction", "mnist, r=3, reconstruction", {"iterations"}),
        ("mnist, r=3, reconstruction", "mnist, r=3, reconstruction, cross-entropy", {"loss"}),
    ):
        one, two = parts[name], parts[other]
        assert {key for key in one if one[key] != two[key] and key != "out"} == changed


def test_a_table_by_hand():
    common = {"learned": 5000, "parameters": 1234, "rate": 0.003}
    seeds = [common | {"accuracy": accuracy} for accuracy in (0.98, 0.99)]
    results = {"mnist, r=1": seeds, "fashion-mnist, r=1": seeds[:1], "mnist, r=3": seeds[1:]}
    rows = ablation.table(results)[1:]
    assert rows == [
        ["r=1", "2.00 · 1.00", "0.34 ± 0.032", "2.00", "0.003", "1,234", "5,000"],
        ["r=3", "1.00", "0.35 ± 0.036", "–", "0.003", "1,234", "5,000"],
    ]
    results["mnist, r=3"] = seeds[:1]
    results["fashion-mnist, r=3"] = [seeds[1] | {"learned": 700, "rate": 0.001}]
    row = ["r=3", "2.00", "0.35 ± 0.036", "1.00", "0.003 / 0.001", "1,234", "5,000 / 700"]
    assert ablation.table(results)[2] == row
    what, *first = ablation.headline(results)[0]
    assert what == "MNIST, 1 iteration: test error"
    assert first == ["0.34 ± 0.032 %", "2.00 · 1.00 %", "2", "5,000"]


@pytest.mark.parametrize(("accuracies", "rate"), [((0.8, 0.9), 0.001), ((0.9, 0.8), 0.003)])
@pytest.mark.parametrize(
    ("module", "part", "name"),
    [
        (ablation, "mnist, dense-cnn, reconstruction", "mnist-dense-cnn-reconstruction"),
        (ladder, "mnist, linear layers", "mnist-linear-layers"),
    ],
)
def test_seed_0_decides_on_the_learning_rate_of_all_seeds(
    module, part, name, accuracies, rate, monkeypatch
):
    lab = Mock(decided=lambda part: {})
    lab.train.side_effect = lambda name, _, options: Path(name, str(options["seed"]))
    lab.right.return_value = np.array([True, True, True, False])
    ends = {f"{name}-{k}": a for k, a in zip(RATES, accuracies, strict=True)}

    def history(folder):
        accuracy = ends[folder.parent.name] if folder.name == "0" else 1 - rate
        return {"validation_accuracy": [accuracy], "validation_loss": [0.1]}

    for one in (equal, module):
        monkeypatch.setattr(one, "history", history)
    summary = {"parameters": 7, "training_seconds": 1.0}
    monkeypatch.setattr(module, "read_summary", lambda _: summary)
    found = module.measure(lab, part, module.parts(quick=False)[part], 3)
    trained = [
        (call.args[2]["learning_rate"], call.args[2]["seed"]) for call in lab.train.mock_calls
    ]
    assert trained == [(0.003, 0), (0.001, 0), (rate, 3)]
    assert (found["rate"], found["accuracy"]) == (rate, 0.75)
    assert found["wrong"] in ("3", {"mnist": "3"})
    lab.model.assert_called_once_with(Path(f"{name}-{rate}", "3", "last.npz"))

    lab.train.reset_mock()  # on another machine, which has the results of seed 0 but no networks
    lab.decided = {part: {"rate": 0.003, "searched": {"0.003": 0.9}}}.get
    found = module.measure(lab, part, module.parts(quick=False)[part], 4)
    trained = [call.args[2]["learning_rate"] for call in lab.train.mock_calls]
    assert (trained, found["searched"]) == ([0.003], {"0.003": 0.9})


@pytest.fixture
def tiny_parts(monkeypatch):
    """Two networks on drawn digits in place of MNIST; the second data set is missing."""
    wanted = ("mnist, r=1, reconstruction", "mnist, r=3", "fashion-mnist, r=3")
    short = {"validation": 10, "batch_size": 16}
    whole = ablation.parts(quick=True)
    monkeypatch.setattr(ablation, "parts", lambda quick: {p: whole[p] | short for p in wanted})

    def load(name, *args):
        if name == "fashion-mnist":
            raise DataError("fashion-mnist is not here")
        return drawn("strokes", *args)

    drawn = data._load
    monkeypatch.setattr(data, "_load", load)


@pytest.mark.slow
def test_missing_data_is_told_after_the_figures_that_are_there(tiny_parts, capsys):
    assert command.main(QUICK) == 1
    said = capsys.readouterr()
    assert "results above are incomplete: fashion-mnist is not here" in said.err
    assert "r=1, reconstruction" in said.out
    table = json.loads((FOLDER / "ablation.json").read_text())["table"]
    assert [row[0] for row in table] == ["test error, %", "r=1, reconstruction", "r=3"]
    assert (FOLDER / "ablation.png").stat().st_size > 10_000


def test_without_any_data_only_that_is_told(tiny_parts, monkeypatch, capsys):
    only = {"fashion-mnist, r=3": ablation.parts(quick=True)["fashion-mnist, r=3"]}
    monkeypatch.setattr(ablation, "parts", lambda quick: only)
    assert command.main(QUICK) == 1
    assert capsys.readouterr().err == "minicaps.experiments: fashion-mnist is not here\n"
    assert not (FOLDER / "ablation.json").exists()
