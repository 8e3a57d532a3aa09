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
from commands import environment, said_by

from minicaps.runs import checkpoint
from minicaps.train import __main__ as train

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


def run(*arguments, out="run"):
    """Train in this process; return the run folder."""
    assert train.main([*TINY, "--out", str(out), *arguments]) == 0
    return Path(out)


def go_on(folder, *arguments):
    """Resume a run in this process; return its folder."""
    assert train.main(["--resume", str(folder), "--quiet", *arguments]) == 0
    return Path(folder)


def start(*arguments, code=TINY_PROCESS, **keywords):
    """Start training in another process."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    keywords = pipes | {"env": environment(), "text": True} | keywords
    return subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], **keywords)


def finish(process):
    """Wait for a process; return its exit code and what it wrote. A traceback is a failure."""
    out, err = process.communicate(timeout=600)
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
    said = said_by(capsys, train.main, *arguments, code=code)
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
