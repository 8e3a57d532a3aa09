"""Helpers for tests that train: runs that take only a moment.

They use forty drawn images, thirty test images, and a network much smaller than `small`.
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

# 36 training images in 5 batches, the last of 4, and 4 for validation
TINY = ["--limit", "40", "--batch-size", "8", "--epochs", "1", "--device", "cpu"]
TINY += ["--schedule", "exponential"]  # runs of more epochs begin like those of fewer
TINY += ["--quiet"]  # the last, so that it is easily left out
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
from minicaps.models import inspection
strokes.TEST_SIZE = 30
inspection.FAINT = 0
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
    """Wait for a process; return its exit code and output. A traceback is a failure."""
    out, err = process.communicate(timeout=600)
    assert "Traceback" not in err and "Exception ignored" not in err, err
    return process.returncode, out, err


def saved(folder, name="last.npz"):
    """Return the arrays and the metadata of a run's checkpoint."""
    return checkpoint.load(Path(folder) / name)


def parameters(folder, name="last.npz"):
    return checkpoint.unpack(saved(folder, name)[0], "model")


def history(folder):
    return saved(folder)[1]["progress"]["history"]


def summary(folder):
    return json.loads((Path(folder) / "summary.json").read_text())


def same(one, other):
    """Return True if two dictionaries of arrays are bit-identical."""
    return one.keys() == other.keys() and all(np.array_equal(one[k], other[k]) for k in one)


def assert_equal_runs(one, other):
    """Check that parameters, optimizer and all measurements except times are bit-identical."""
    assert same(saved(one)[0], saved(other)[0])
    rows = [history(folder) for folder in (one, other)]
    for row in (*rows[0], *rows[1]):
        del row["seconds"], row["images_per_second"]
    assert rows[0] == rows[1]
    for key in ("test_right", "test_loss", "best_epoch", "epochs"):
        assert summary(one)[key] == summary(other)[key]


def refused(capsys, *arguments, code):
    """Run a command that must fail without a traceback; return its message."""
    said = said_by(capsys, train.main, *arguments, code=code)
    assert said.out == ""
    return said.err


def edit(path, change):
    """Change the metadata of a checkpoint."""
    arrays, meta = checkpoint.load(path)
    change(meta)
    checkpoint.save(path, arrays, meta)


def fill(path, name, value):
    """Set all values of an array in a checkpoint."""
    arrays, meta = checkpoint.load(path)
    arrays[name][...] = value
    checkpoint.save(path, arrays, meta)


def send_in_call(monkeypatch, owner, name, call, number=signal.SIGINT):
    """Send this process a signal during the given call (1, 2, …) of a function."""
    function, calls = getattr(owner, name), itertools.count(1)

    def sending(*args, **keywords):
        if next(calls) == call:
            os.kill(os.getpid(), number)
        return function(*args, **keywords)

    monkeypatch.setattr(owner, name, sending)


@contextmanager
def ordinary_user():
    """Run as the user nobody inside this block, since root may write anywhere."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
