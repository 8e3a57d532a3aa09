"""Start programs on several ranks."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import environment
from tiny_runs import TINY, TINY_PROCESS

MPIEXEC = shutil.which("mpiexec", path=os.path.dirname(sys.executable)) or shutil.which("mpiexec")
needs_mpi = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None or MPIEXEC is None,
    reason='several ranks need mpi4py: pip install -e ".[mpi]"',
)


def own_environment():
    """Return a user's environment in which the helpers of the tests can be imported."""
    own = environment()
    return own | {"PYTHONPATH": os.pathsep.join([own["PYTHONPATH"], str(Path(__file__).parent)])}


def start(ranks, *arguments, **keywords):
    """Start `python ARGUMENTS…` on a number of ranks."""
    line = [MPIEXEC, "-n", str(ranks), sys.executable, *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    return subprocess.Popen(line, env=own_environment(), text=True, **pipes | keywords)


def finish(process):
    """Wait for a process; return its exit code and output. A traceback is a failure."""
    out, err = process.communicate(timeout=600)
    assert "Traceback" not in err and "Exception ignored" not in err, err
    return process.returncode, out, err


def run(ranks, *arguments, code=0, **keywords):
    """Run `python ARGUMENTS…` on a number of ranks; return its output."""
    found, out, err = finish(start(ranks, *arguments, **keywords))
    assert found == code, err
    return out, err


def train(ranks, *arguments, fault="", **keywords):
    """Start tiny training runs on a number of ranks. fault: code that is run first."""
    resumed = "--resume" in arguments
    options = ["--quiet"] if resumed else TINY
    return start(ranks, "-c", fault + TINY_PROCESS, *options, *arguments, **keywords)


def in_step(number, rank, action):
    """Return code that runs `action` on one rank before a step of training, counted from 1."""
    return f"""
import os, resource, signal, time
from minicaps import ranks
from minicaps.errors import DataError
from minicaps.train.trainer import Trainer
step = Trainer._step
def spoiled(self, *batch):
    if ranks.rank() == {rank} and self.learner.optimizer.steps == {number} - 1:
        {action}
    step(self, *batch)
Trainer._step = spoiled
"""


def wait_for(path, process):
    """Wait until a running process has written a file."""
    while not Path(path).exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


def ranks_of(process):
    """Return {rank: process ID} of the ranks that a running mpiexec has started."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
            parent = _ancestors(int(folder.name))
        except OSError:  # it has ended, or belongs to another user
            continue
        number = [v[9:] for v in variables if v.startswith(b"PMI_RANK=")]
        if number and process.pid in parent:
            found[int(number[0])] = int(folder.name)
    return found


def _ancestors(pid):
    found = set()
    while pid > 1:
        text = Path(f"/proc/{pid}/stat").read_text()
        pid = int(text.rpartition(")")[2].split()[1])
        found.add(pid)
    return found


def stop(process, number=signal.SIGTERM):
    """Send a signal to mpiexec; return the exit code and the output."""
    process.send_signal(number)
    return finish(process)
