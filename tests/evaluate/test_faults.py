"""Tests of `minicaps.evaluate` on faults: wrong runs, damaged files, full disks, odd names."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from commands import environment
from evaluations import FILES, folder_of, measured, predictions, refusal, table
from own_files import noise
from thinning import thinned_rows
from tiny_runs import NETWORK, edit, fill, finish, ordinary_user, run, send_in_call

from minicaps.evaluate import __main__ as evaluate
from minicaps.models import CapsNet

IN_PROCESS = """
import sys
from minicaps import models
from minicaps.cli.command import start
from minicaps.evaluate import __main__ as evaluate
models.CAPSNET_PRESETS["small"] = NETWORK
sys.exit(start(evaluate.main))
""".replace("NETWORK", repr(NETWORK))


def started(code, *arguments):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, env=environment(), **pipes)


def test_what_is_no_run(capsys, tmp_path):
    folder = run()
    (tmp_path / "text.npz").write_text("nothing")
    (tmp_path / "empty").mkdir()
    whole = (folder / "best.npz").read_bytes()
    (tmp_path / "half.npz").write_bytes(whole[: len(whole) // 2])
    np.savez("arrays.npz", images=np.zeros(3))
    for seed in (3, 4):
        shutil.copytree(folder, f"seeds/seed-{seed}")
    for path, part in (
        ("nowhere", "there is no checkpoint nowhere"),
        ("empty", "empty has no best.npz: it is not a run folder, or its first epoch was"),
        ("seeds", "it contains runs; choose one of them, such as seeds/seed-3"),
        ("text.npz", "text.npz is damaged or not a minicaps checkpoint: it is not a zip archive"),
        ("half.npz", "half.npz is damaged or not a minicaps checkpoint"),
        (
            "arrays.npz",
            "not a minicaps checkpoint: it does not describe a network; is it a data set?",
        ),
        (folder / "config.json", "config.json is damaged or not a minicaps checkpoint"),
    ):
        said = refusal(capsys, path)
        assert part in said and len(said.splitlines()) == 1
        assert "allow_pickle" not in said  # NumPy's advice, which could run code


@pytest.mark.parametrize(
    ("change", "part"),
    thinned_rows(
        [
            (lambda m: m["options"].pop("seed"), "this version of minicaps: KeyError('seed')"),
            (lambda m: m["options"].update(seed="x"), "cannot be split as it was for"),
            (lambda m: m["options"].update(seed=-1), "cannot be split as it was for"),
            (lambda m: m["options"].update(data="gone"), "gone no longer exists, but this run was"),
            (lambda m: m["options"].update(data=3), "does not fit this version of minicaps"),
            (lambda m: m.update(options=[]), "does not fit this version of minicaps"),
            (lambda m: m["options"].update(loss="hinge"), "unknown loss 'hinge'"),
            (lambda m: m["preprocessing"].pop("class_names"), "does not fit this version of"),
            (lambda m: m["preprocessing"].update(class_names=["a"]), "1 names for 10 classes"),
            (
                lambda m: m["preprocessing"].update(class_names=list("abcdefghij")),
                "restore the original data",
            ),
            (lambda m: m.pop("preprocessing"), "lacks preprocessing"),
            (lambda m: m["model"].update(classes=11), "contains no model that can be built"),
        ],
        4,
    ),
)
def test_a_checkpoint_edited_by_hand(capsys, change, part):
    edit(run() / "best.npz", change)
    assert part in refusal(capsys, "run")
    assert not Path("run/evaluation").exists()


@pytest.mark.parametrize(
    ("value", "part"),
    [
        (np.nan, "best.npz has parameters that are infinite or NaN: it is damaged"),
        (np.finfo("f4").max, "the scores of 30 of 30 images are infinite or NaN"),
    ],
)
def test_activations_that_are_not_finite(capsys, value, part):
    folder = run()
    fill(folder / "best.npz", "model/convolutions.0.weight", value)
    assert part in refusal(capsys, folder)
    assert not (folder / "evaluation/evaluation.json").exists()


@pytest.mark.usefixtures("undrawn")
def test_ctrl_c(monkeypatch, capsys):
    folder = run()
    before = measured(folder)
    send_in_call(monkeypatch, CapsNet, "forward", 2)
    said = refusal(capsys, folder, "--batch-size", "8", code=130)
    assert said.strip() == "minicaps.evaluate: interrupted"
    assert json.loads((folder / "evaluation/evaluation.json").read_text()) == before
    assert sorted(os.listdir(folder / "evaluation")) == FILES


def test_too_little_memory(monkeypatch, capsys):
    folder = run()

    def forward(self, images):
        raise MemoryError

    monkeypatch.setattr(CapsNet, "forward", forward)
    assert "there is not enough memory: try a smaller --batch-size" in refusal(capsys, folder)


@pytest.mark.skipif(os.name != "posix", reason="requires POSIX permissions")
def test_an_ordinary_user_may_not_write(capsys):
    with tempfile.TemporaryDirectory() as place:  # not inside a folder that only root can enter
        os.chmod(place, 0o755)
        folder = run(out=f"{place}/run")
        os.chmod(folder, 0o555)
        with ordinary_user():
            said = refusal(capsys, folder)
        wanted = f"cannot write {folder}/evaluation: Permission denied; choose another --out"
        assert wanted in said
        os.chmod(folder / "best.npz", 0)
        with ordinary_user():
            assert f"cannot read {folder}/best.npz: Permission denied" in refusal(capsys, folder)
        os.chmod(folder, 0o755)


@pytest.mark.slow
def test_where_the_results_cannot_go(capsys):
    folder = run()
    Path("file").write_text("mine")
    for out in ("file", "file/below"):
        assert (
            f"cannot write {out}: a file exists where a folder is needed; choose another --out"
            in refusal(capsys, folder, "--out", out)
        )
    assert Path("file").read_text() == "mine"
    said = refusal(capsys, folder, "--out", folder, code=2)
    assert "run exists but was not created by an evaluation" in said
    said = refusal(capsys, folder, "--out", "x" * 300)
    assert "File name too long" in said


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", FILES)
def test_a_full_disk_leaves_the_last_results(monkeypatch, capsys, name):
    folder = run()
    measured(folder, "--part", "train")
    results = folder / "evaluation-train"
    before = {path.name: path.read_bytes() for path in results.iterdir()}
    replace = os.replace

    def full(source, target):
        if Path(target).name == name:
            raise OSError(28, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    said = refusal(capsys, folder, "--part", "train")
    assert f"cannot write {results}/{name}: No space left on device" in said
    assert (results / name).read_bytes() == before[name]
    assert sorted(os.listdir(results)) == FILES


@pytest.mark.slow
def test_odd_names_are_written_as_they_are(tmp_path, capsys):
    """Test formulas, commas, quotes, letters that the font lacks, and bytes that are not text."""
    names = ["$x_1$", 'a, "b"', "鸟", "n" * 90]
    root = folder_of(tmp_path / "odd", dict.fromkeys(names, 4))
    first = root / "$x_1$/0.png"
    first.rename(root / "$x_1$" / os.fsdecode(b"\xff.png"))
    folder = run("--data", str(root), "--limit", "10", "--model", "pooling-cnn")
    capsys.readouterr()
    found = measured(folder, "--data", root, "--part", "train")
    assert found["samples"] == 9
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    rows = table(folder / "evaluation-train/confusion.csv")
    assert rows[0][1:] == [row["name"] for row in found["classes"]] == sorted(names)
    assert matplotlib.image.imread(folder / "evaluation-train/confusion.png").std() > 0.05
    written = b"".join(
        path.read_bytes() for path in folder.glob("evaluation-train/predictions.csv")
    )
    everything = measured(folder, "--data", str(root), "--part", "test", out="test")
    written += Path("test/predictions.csv").read_bytes()
    assert everything["samples"] == 4 and written.count(b".png") == 13


@pytest.mark.usefixtures("undrawn")
def test_unusable_pictures_are_named(tmp_path, capsys):
    folder = run("--data", str(folder_of(tmp_path / "pets", {"cat": 4, "dog": 4})), "--limit", "6")
    new = folder_of(tmp_path / "new", {"cat": 2})
    for content, part in ((b"", "0.png is empty"), (b"text", "0.png is not a readable image")):
        (new / "cat/0.png").write_bytes(content)
        assert part in refusal(capsys, folder, "--data", new)
    (new / "cat/0.png").unlink()
    (new / "cat/1.png").unlink()
    assert "cat contains no images" in refusal(capsys, folder, "--data", new)
    (new / "cat").rmdir()
    assert "has 0 class folders: a classifier needs at least 1" in refusal(
        capsys, folder, "--data", new
    )
    (new / "loose.png").write_bytes(b"")
    assert "files outside of class folders: loose.png" in refusal(capsys, folder, "--data", new)
    assert "loose.png is not a data set" in refusal(capsys, folder, "--data", new / "loose.png")


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_one_picture_right_or_wrong(tmp_path):
    trained = run()
    for label in range(10):
        np.savez(f"{label}.npz", images=noise(0, 1, 28, 28), labels=[label])
    found = [measured(trained, "--data", f"{k}.npz", out=f"of-{k}") for k in range(10)]
    assert sorted(f["right"] for f in found) == [0] * 9 + [1]
    assert {f["samples"] for f in found} == {1}
    assert len(predictions("of-0")) == 1


@pytest.mark.slow
def test_closed_and_broken_pipes(tmp_path):
    folder = run()
    process = started(IN_PROCESS, folder, "--part", "validation")
    process.stdout.close()  # as with `| head -0`
    process.wait(timeout=600)
    assert "Traceback" not in (said := process.stderr.read()) and "Exception ignored" not in said
    process.stderr.close()


@pytest.mark.slow
def test_ctrl_c_of_a_process():
    slow = IN_PROCESS.replace(
        "sys.exit",
        "def sleep(*_, **__):\n    import time\n    print('now', flush=True)\n    time.sleep(600)\n"
        "evaluate.classify = sleep\nsys.exit",
    )
    process = started(slow, run(), "--quiet", "--part", "validation")
    assert process.stdout.readline() == "now\n"
    process.send_signal(signal.SIGINT)
    assert finish(process) == (130, "", "minicaps.evaluate: interrupted\n")


def test_a_run_must_be_named(capsys):
    with pytest.raises(SystemExit, match="2"):
        evaluate.main([])
    assert "the following arguments are required: RUN" in capsys.readouterr().err
