"""Ctrl-C and SIGTERM at any time: the command prints a message or nothing, and loses no work."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from commands import ROOT, environment
from thinning import thinned
from tiny_runs import TINY, assert_equal_runs, finish, go_on, run, send_in_call, start, summary

from minicaps import plotting
from minicaps.cli import signals
from minicaps.cli.signals import StopRequest
from minicaps.runs import checkpoint
from minicaps.train import __main__ as train
from minicaps.train import resume

# Code that replaces a module every command imports, and simulates Ctrl-C during the import
INTERRUPTING = "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(9)"
COMMANDS = sorted(
    f"minicaps.{path.relative_to(ROOT / 'minicaps').parts[0].removesuffix('.py')}"
    for path in (ROOT / "minicaps").rglob("*.py")
    if "sys.exit(start(" in path.read_text()
)


def test_commands_are_found():
    assert {"minicaps.train", "minicaps.data", "minicaps.bench"} <= set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("module", thinned(["numpy", "tqdm"]))
def test_ctrl_c_while_a_command_is_imported_is_silent(command, module, tmp_path):
    (tmp_path / f"{module}.py").write_text(INTERRUPTING)
    own = environment()
    own["PYTHONPATH"] = os.pathsep.join([str(tmp_path), own["PYTHONPATH"]])
    line = [sys.executable, "-m", command]
    done = subprocess.run(line, env=own, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


@pytest.mark.slow
def test_importing_minicaps_leaves_signals_alone(tmp_path):
    """This includes imports by another program run with `python -m`."""
    Path("other").mkdir()
    Path("other/__init__.py").write_text("import minicaps")
    Path("other/main.py").write_text("import signal; print(signal.getsignal(signal.SIGINT))")
    own = environment()
    own["PYTHONPATH"] = os.pathsep.join([str(tmp_path), own["PYTHONPATH"]])
    line = [sys.executable, "-m", "other.main"]
    done = subprocess.run(line, env=own, capture_output=True, text=True, timeout=600)
    assert "default_int_handler" in done.stdout


def test_ctrl_c_that_is_ignored_stays_ignored():
    """This is how the shell starts background jobs in a script."""
    code = "import sys; sys.argv[0] = '-m'; sys.orig_argv.append('minicaps.x'); import signal;"
    code += "signal.signal(signal.SIGINT, signal.SIG_IGN); import minicaps;"
    code += "from minicaps.cli.command import start;"
    code += "print(start(lambda: signal.getsignal(signal.SIGINT) == signal.SIG_IGN))"
    process = start(code=code)
    assert finish(process)[1] == "True\n"


# ---- signals during a run

MOMENTS = {
    "drawing": (plotting, "curves", 1),
    "reconstructing": (plotting, "reconstructions", 1),
    "the summary": (resume, "write_json", 2),
    "a checkpoint": (np, "savez", 2),
}


@pytest.mark.parametrize("moment", thinned(MOMENTS.values()), ids=MOMENTS)
@pytest.mark.parametrize("number", thinned([signal.SIGINT, signal.SIGTERM]))
def test_what_was_measured_is_never_lost(monkeypatch, moment, number):
    straight = run(out="straight")
    with monkeypatch.context() as patch:
        send_in_call(patch, *moment, number)
        assert train.main([*TINY, "--out", "run"]) in (0, 128 + number)
    assert_equal_runs(go_on("run"), straight)
    assert not list(Path("run").glob("*.part"))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_at_any_time(number):
    """Stop six processes at random times; their runs can be resumed or started again."""
    straight = run("--epochs", "3", out="straight")
    waits = random.Random(int(number))
    for trial in range(6):
        folder = Path(f"run-{trial}")
        process = start(*TINY, "--epochs", "3", "--out", folder)
        while process.poll() is None and not folder.exists():
            time.sleep(0.001)
        time.sleep(waits.uniform(0, 0.3))
        process.send_signal(number)
        assert finish(process)[0] in (0, 128 + number, -number)
        if (folder / "last.npz").exists():
            checkpoint.load(folder / "last.npz")
            finished = run_again("--resume", folder, "--quiet")
        elif not os.listdir(folder):
            finished = run_again(*TINY, "--epochs", "3", "--out", folder)
        else:  # nothing had been saved yet
            assert set(os.listdir(folder)) <= {"config.json", "best.npz", *parts(folder)}
            continue
        assert finished == 0
        assert_equal_runs(folder, straight)
        assert summary(folder)["epochs"] == 3
        assert not parts(folder)


def run_again(*arguments):
    return train.main([str(argument) for argument in arguments])


def parts(folder):
    return {path.name for path in folder.glob("*.part")}


def test_signals_that_come_together_are_one_request(monkeypatch):
    """`timeout` signals its child and then the group; a later signal interrupts at once."""
    stop, now = StopRequest(), [0.0]
    monkeypatch.setattr(signals.time, "monotonic", lambda: now[0])
    with stop.listening():
        for now[0] in (0.0, 0.3, 0.9):
            signal.raise_signal(signal.SIGINT)
        now[0] = 1.1
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert stop.signal == signal.SIGINT


@pytest.mark.parametrize("inside", [True, False])
def test_requests_to_stop_may_be_listened_for_within_such_a_block(inside):
    """The handlers change back at the end of the outer block, or after the first signal."""
    stop, before = StopRequest(), signal.getsignal(signal.SIGTERM)
    with stop.listening():
        with stop.listening():
            if inside:
                signal.raise_signal(signal.SIGTERM)
        if not inside:
            signal.raise_signal(signal.SIGTERM)
        assert stop.signal == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == before
