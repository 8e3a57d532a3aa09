"""What the tests of `minicaps.evaluate` share: the command, and pictures on disk."""

import csv
import json
from pathlib import Path

import pytest
from own_files import SIZE, noise, write

from minicaps import plotting
from minicaps.evaluate import __main__ as evaluate
from minicaps.storage import write_json

FILES = ["confusion.csv", "confusion.png", "evaluation.json", "predictions.csv", "worst.png"]


@pytest.fixture
def undrawn(monkeypatch):
    """No drawing, which takes most of the time; the files hold nothing."""
    for name in ("confusion", "worst"):
        monkeypatch.setattr(plotting, name, lambda *arguments: write_json(arguments[-1], None))


def measured(run, *arguments, out=None):
    """Evaluate; return what evaluation.json says."""
    more = [] if out is None else ["--out", str(out)]
    assert evaluate.main([str(run), "--device", "cpu", *map(str, arguments), *more]) == 0
    return json.loads(Path(out or Path(run) / "evaluation", "evaluation.json").read_text())


def refusal(capsys, *arguments, code=1):
    """Evaluate, which must refuse with an exit code; return what it said."""
    capsys.readouterr()
    try:
        assert evaluate.main([*map(str, arguments), "--device", "cpu"]) == code
    except SystemExit as stopped:
        assert stopped.code == code
    said = capsys.readouterr()
    assert "Accuracy" not in said.out
    return said.err


def table(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def predictions(folder):
    """{picture: (class, answer)} of predictions.csv."""
    return {row[0]: tuple(row[1:3]) for row in table(Path(folder, "predictions.csv"))[1:]}


def folder_of(root, counts, *, channels=(3,), size=SIZE, start=0):
    """Write noise into a folder for each class: counts is {class: number of pictures}."""
    for c, (name, count) in enumerate(counts.items()):
        for k in range(start, start + count):
            write(root / name / f"{k}.png", noise(100 * c + k, *size, *channels))
    return root
