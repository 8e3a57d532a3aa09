"""A tiny experiment, or tiny runs with several seeds, in processes that share a folder."""

import json
import os
import subprocess
import sys

from commands import environment
from mpi import MPIEXEC
from tiny_runs import NETWORK

# Networks of an experiment whose parts are independent, and of one that compares all its networks.
# Each process notes the trainings that it begins: the folder, and the epoch and batch to begin at.
PROCESS = f"""
import os, runpy, sys, time
from minicaps import models, plotting
from minicaps.data import strokes
from minicaps.experiments import lab, pairs, viewpoint
from minicaps.models import inspection
from minicaps.train.trainer import Trainer

strokes.TEST_SIZE = 30
inspection.FAINT = 0
lab.QUICK_TRAINING, lab.QUICK_TEST = 80, 30
models.CAPSNET_PRESETS["small"] = {NETWORK}
plotting.curves = plotting.reconstructions = lambda *_: None
pairs.draw = viewpoint.draw = lambda results, path, lab: path.write_text("figure")
small = {{"data": "strokes", "validation": 20, "epochs": 3, "batch_size": 16}}
few = small | {{"model": "pooling-cnn", "limit": 40, "validation": 10, "batch_size": 8}}
pairs.parts = lambda quick: {{"one": few, "two": few | {{"learning_rate": 0.002}}}}
viewpoint.parts = lambda quick: {{
    "matrix capsules": small | {{"model": "capsnet", "epochs": 2}},
    "CapsNet": small | {{"model": "capsnet"}},
    "CNN": small | {{"model": "pooling-cnn"}},
}}
run, step = Trainer.run, Trainer._step

def noting(self):
    with open("begun.log", "a") as log:
        log.write(f"{{self.folder.name}} {{self.epoch}} {{self.batch}}\\n")
    return run(self)

def slow(self, *batch):
    time.sleep(float(os.environ.get("SLOW", 0)))
    step(self, *batch)

Trainer.run, Trainer._step = noting, slow
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""


def experiment(name="pairs", seeds=2):
    """Return the arguments of an experiment."""
    return ["minicaps.experiments", name, "--quick", "--seeds", str(seeds), "--device", "cpu"]


def begin(folder, arguments, ranks=0, slow=0.0, cores=None):
    """Start a command in a folder, on several ranks if `ranks` is given.

    slow: additional seconds per training step. cores: number of cores to use.
    """
    mpiexec = [MPIEXEC, "-n", str(ranks)] if ranks else []
    folder.mkdir(exist_ok=True)
    return subprocess.Popen(
        [*mpiexec, sys.executable, "-c", PROCESS, *arguments],
        cwd=folder,
        env=environment() | {"SLOW": str(slow)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=None if cores is None else lambda: _use(cores),
    )


def _use(cores):
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])


def begun(folder):
    """Return the trainings that were begun: (network, epoch, batch)."""
    log = folder / "begun.log"
    lines = log.read_text().splitlines() if log.exists() else []
    return [(name, int(epoch), int(batch)) for name, epoch, batch in map(str.split, lines)]


def figures(folder, name="pairs"):
    """Return the results of all seeds as text, without the times."""
    found = {}
    for path in sorted(folder.glob(f"runs/experiments/{name}-quick/{name}/*.json")):
        entries = json.loads(path.read_text())
        for entry in entries.values():
            del entry["figures"]["seconds"], entry["machine"]
        found[path.name] = dict(sorted(entries.items()))
    return json.dumps(found, indent=1)
