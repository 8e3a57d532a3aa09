"""ablation: one choice changes at a time, and missing data costs no other results."""

import json
from pathlib import Path

import pytest

from minicaps import data
from minicaps.errors import DataError
from minicaps.experiments import __main__ as command
from minicaps.experiments import ablation
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
    seeds = [{"accuracy": a, "learned": 5000, "parameters": 1234} for a in (0.98, 0.99)]
    results = {"mnist, r=1": seeds, "fashion-mnist, r=1": seeds[:1], "mnist, r=3": seeds[1:]}
    rows = ablation.table(results)[1:]
    assert rows == [
        ["r=1", "2.00 · 1.00", "0.34 ± 0.032", "2.00", "1,234", "5,000"],
        ["r=3", "1.00", "0.35 ± 0.036", "–", "1,234", "5,000"],
    ]
    results["mnist, r=3"], results["fashion-mnist, r=3"] = seeds[:1], [seeds[1] | {"learned": 700}]
    row = ["r=3", "2.00", "0.35 ± 0.036", "1.00", "1,234", "5,000 / 700"]
    assert ablation.table(results)[2] == row
    what, *first = ablation.headline(results)[0]
    assert what == "MNIST, 1 iteration: test error"
    assert first == ["0.34 ± 0.032 %", "2.00 · 1.00 %", "2", "5,000"]


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
