"""Runs of the trainer that take a moment, for the tests: short names for what they repeat.

Forty drawn pictures, thirty to test on, and a network much smaller than `small` in its place.
"""

import itertools
import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from minicaps import data, models, plotting
from minicaps.data import strokes
from minicaps.runs import checkpoint
from minicaps.train import __main__ as train

ROOT = Path(__file__).parents[1]
# 36 training pictures in 5 batches, the last of 4, and 4 for validation
TINY = ["--limit", "40", "--batch-size", "8", "--epochs", "1", "--device", "cpu", "--quiet"]
NETWORK = {
    "convolutions": ((4, 5, 2),),
    "primary": (2, 4, 5, 2),
    "capsule_size": 4,
    "hidden": (8,),
}
# The fixture `tiny` and the command, in another process:
TINY_PROCESS = f"""
import runpy
from minicaps import models, plotting
from minicaps.data import strokes
strokes.TEST_SIZE = 30
models.CAPSNET_PRESETS["small"] = {NETWORK}
plotting.curves = plotting.reconstructions = lambda *_: None
runpy.run_module("minicaps.train", run_name="__main__")
"""


@pytest.fixture(autouse=True)
def tiny(monkeypatch, tmp_path):
    """Few test pictures, tiny networks, no drawing, and an empty folder to work in."""
    monkeypatch.setattr(strokes, "TEST_SIZE", 30)
    monkeypatch.setitem(models.CAPSNET_PRESETS, "small", NETWORK)
    monkeypatch.setitem(models.MATRIX_PRESETS, "small", (8, 2, 3, 3))
    monkeypatch.setattr(plotting, "curves", lambda *_: None)
    monkeypatch.setattr(plotting, "reconstructions", lambda *_: None)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def specks(monkeypatch):
    """Pictures of 4×4 pixels: the baseline network has three million parameters then, not 35."""

    def cut(split):
        return data.Split(split.images[:, :, 12:16, 12:16], split.labels)

    def load(*args, **keywords):
        whole = original(*args, **keywords)
        return data.Dataset(whole.name, cut(whole.train), cut(whole.test), whole.class_names)

    original = data.load
    monkeypatch.setattr(data, "load", load)


def run(*arguments, out="run"):
    """Train in this process; return the run folder."""
    assert train.main([*TINY, "--out", str(out), *arguments]) == 0
    return Path(out)


def go_on(folder, *arguments):
    """Resume a run in this process; return its folder."""
    assert train.main(["--resume", str(folder), "--quiet", *arguments]) == 0
    return Path(folder)


def environment():
    """As users have it: output is buffered, and messages are not translated."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return own | {"PYTHONPATH": str(ROOT)}


def start(*arguments, code=TINY_PROCESS, **keywords):
    """Start training in another process."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    keywords = pipes | {"env": environment(), "text": True} | keywords
    return subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], **keywords)


def finish(process):
    """Wait for a process; return its exit code and what it wrote. A traceback is a failure."""
    out, err = process.communicate(timeout=120)
    assert "Traceback" not in err and "Exception ignored" not in err, err
    return process.returncode, out, err


def saved(folder, name="last.npz"):
    """The arrays and the meta of a run's checkpoint."""
    return checkpoint.load(Path(folder) / name)


def parameters(folder, name="last.npz"):
    return checkpoint.unpack(saved(folder, name)[0], "model")


def history(folder):
    return saved(folder)[1]["progress"]["history"]


def summary(folder):
    return json.loads((Path(folder) / "summary.json").read_text())


def same(one, other):
    """Tell whether two dictionaries of arrays are bit-equal."""
    return one.keys() == other.keys() and all(np.array_equal(one[k], other[k]) for k in one)


def assert_equal_runs(one, other):
    """Parameters and optimiser are bit-equal, and all that was measured but the time."""
    assert same(saved(one)[0], saved(other)[0])
    rows = [history(folder) for folder in (one, other)]
    for row in (*rows[0], *rows[1]):
        del row["seconds"], row["images_per_second"]
    assert rows[0] == rows[1]
    for key in ("test_right", "test_loss", "best_epoch", "epochs"):
        assert summary(one)[key] == summary(other)[key]


def refused(capsys, *arguments, code):
    """Run the command, which must refuse; return what it said, which is no traceback."""
    try:
        assert train.main(list(arguments)) == code
    except SystemExit as stopped:
        assert stopped.code == code
    said = capsys.readouterr()
    assert said.out == ""
    return said.err


def edit(path, change):
    """Change the meta of a checkpoint."""
    arrays, meta = checkpoint.load(path)
    change(meta)
    checkpoint.save(path, arrays, meta)


def fill(path, name, value):
    """Set all numbers of an array of a checkpoint."""
    arrays, meta = checkpoint.load(path)
    arrays[name][...] = value
    checkpoint.save(path, arrays, meta)


def send_in_call(monkeypatch, owner, name, call, number=signal.SIGINT):
    """Send this process a signal in the given call (1, 2, …) of a function."""
    function, calls = getattr(owner, name), itertools.count(1)

    def sending(*args, **keywords):
        if next(calls) == call:
            os.kill(os.getpid(), number)
        return function(*args, **keywords)

    monkeypatch.setattr(owner, name, sending)


@contextmanager
def ordinary_user():
    """Root may write anywhere; in the block this process is the user nobody."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
