"""Helpers shared by the tests of `minicaps.evaluate`: the command, and images on disk."""

import csv
import json
from pathlib import Path

from commands import said_by
from own_files import SIZE, noise, write

from minicaps.evaluate import __main__ as evaluate

FILES = ["confusion.csv", "confusion.png", "evaluation.json", "predictions.csv", "worst.png"]


def measured(run, *arguments, out=None):
    """Run an evaluation; return the contents of evaluation.json."""
    more = [] if out is None else ["--out", str(out)]
    assert evaluate.main([str(run), "--device", "cpu", *map(str, arguments), *more]) == 0
    written = Path(run if out is None else out).glob("**/evaluation.json")
    return json.loads(max(written, key=lambda path: path.stat().st_mtime_ns).read_text())


def refusal(capsys, *arguments, code=1):
    """Run an evaluation that must fail with an exit code; return its message."""
    said = said_by(capsys, evaluate.main, *arguments, "--device", "cpu", code=code)
    assert "Accuracy" not in said.out
    return said.err


def table(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def predictions(folder):
    """Return {picture: (class, answer)} from predictions.csv."""
    return {row[0]: tuple(row[1:3]) for row in table(Path(folder, "predictions.csv"))[1:]}


def folder_of(root, counts, *, channels=(3,), size=SIZE, start=0):
    """Write noise into a folder for each class; counts is {class: number of images}."""
    for c, (name, count) in enumerate(counts.items()):
        for k in range(start, start + count):
            write(root / name / f"{k}.png", noise(100 * c + k, *size, *channels))
    return root
