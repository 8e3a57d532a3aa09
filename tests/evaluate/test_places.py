"""Where the results of a network are written: no two networks share a place."""

import json
import shutil
from pathlib import Path

import pytest
from commands import said_by
from evaluations import folder_of
from tiny_runs import run

from minicaps import plot
from minicaps.data import __main__ as data
from minicaps.evaluate import __main__ as evaluate
from minicaps.explore import __main__ as explore
from minicaps.export import __main__ as export
from minicaps.predict import __main__ as predict
from minicaps.runs.run import open_run

COMMANDS = [evaluate, plot, predict, explore, export]


def folders(place):
    return sorted(path.name for path in Path(place).iterdir() if path.is_dir())


@pytest.mark.usefixtures("undrawn")
def test_another_checkpoint_does_not_replace_the_evaluation_of_the_best(capsys):
    folder = run()
    said_by(capsys, evaluate.main, folder / "best.npz")
    before = (folder / "evaluation/evaluation.json").read_bytes()
    said_by(capsys, evaluate.main, folder / "last.npz")
    said_by(capsys, evaluate.main, folder / "last.npz", "--part", "train")
    assert folders(folder) == ["evaluation", "last-evaluation", "last-evaluation-train"]
    assert (folder / "evaluation/evaluation.json").read_bytes() == before
    found = json.loads((folder / "last-evaluation/evaluation.json").read_text())
    assert found["checkpoint"] == str(folder / "last.npz")


@pytest.mark.usefixtures("undrawn")
def test_files_in_one_folder_have_results_of_their_own(capsys):
    pytest.importorskip("safetensors")
    folder = run()
    for name in "ab":
        line = [str(folder), "--to", "safetensors", "--out", f"nets/{name}.safetensors"]
        assert export.main(line) == 0
    shutil.copy(folder / "best.npz", "nets/c.npz")
    assert data.main(["export", "strokes", "digits"]) == 0
    for name in ("a.safetensors", "b.safetensors", "c.npz"):
        said_by(capsys, evaluate.main, f"nets/{name}")
        said_by(capsys, plot.main, f"nets/{name}", "kernels")
        said_by(capsys, predict.main, f"nets/{name}", "digits/3.png")
        assert open_run(f"nets/{name}", "cpu").place_of("x.html") == Path(f"nets/{name[0]}-x.html")
    results = ["evaluation", "figures", "predictions"]
    assert folders("nets") == [f"{name}-{result}" for name in "abc" for result in results]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.NAME)
def test_the_help_names_safetensors_and_the_place_of_a_file(command, capsys):
    said = " ".join(said_by(capsys, command.main, "--help").out.split())
    assert "checkpoint file or safetensors file" in said
    if command is not export:
        assert "FILE-" in said and "beside it" in said


@pytest.mark.usefixtures("undrawn")
def test_a_file_in_the_folder_of_another_run_takes_nothing_from_it(tmp_path, capsys):
    """Its images were split by another seed, so the other run's test images may be known to it."""
    pytest.importorskip("safetensors")
    folder_of(tmp_path / "pets", {"cat": 4, "dog": 5})
    few = ("--data", "pets", "--limit", "6")
    there, other = run(*few), run(*few, "--seed", "5", out="other")
    said_by(capsys, export.main, other, "--to", "safetensors", "--out", there / "other.safetensors")
    said = said_by(capsys, evaluate.main, there / "other.safetensors").out
    assert f"{there}/other.safetensors has no split.json: the run may have been trained" in said
    assert "has no split.json" not in said_by(capsys, evaluate.main, there / "last.npz").out
    said = said_by(capsys, plot.main, there / "other.safetensors", "curves", code=2).err
    assert f"there is no {there}/other-metrics.csv" in said
