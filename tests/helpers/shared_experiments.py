"""A tiny experiment in processes of its own, which note every training that they begin."""

import subprocess
import sys

from commands import environment

# `pairs` on drawn digits: two networks; `viewpoint`: three, each of which is compared with all
PROCESS = """
import os, runpy, time
from minicaps import data, models, plotting
from minicaps.data import strokes
from minicaps.experiments import lab, pairs, viewpoint
from minicaps.train.trainer import Trainer

strokes.TEST_SIZE = 30
lab.QUICK_TRAINING, lab.QUICK_TEST = 40, 20
plotting.curves = plotting.reconstructions = lambda *_: None
pairs.draw = viewpoint.draw = lambda results, path, lab: path.write_text("figure")
small = {"data": "strokes", "validation": 10, "epochs": 3, "batch_size": 8}
small |= {"model": "pooling-cnn"}
pairs.parts = lambda quick: {
    "one": small | {"learning_rate": 0.001}, "two": small | {"learning_rate": 0.002},
}
viewpoint.parts = lambda quick: {
    "matrix capsules": small, "CapsNet": small | {"epochs": 2}, "CNN": small | {"epochs": 1},
}
run, step = Trainer.run, Trainer._step

def noting(self):
    with open("begun.log", "a") as log:
        log.write(f"{self.folder.name} {self.epoch} {self.batch}\\n")
    return run(self)

def slow(self, *batch):
    time.sleep(float(os.environ.get("SLOW", 0)))
    step(self, *batch)

Trainer.run, Trainer._step = noting, slow
runpy.run_module("minicaps.experiments", run_name="__main__", alter_sys=True)
"""


def line(name="pairs", seeds=2, ranks=0):
    """Return the command line of an experiment, on several ranks if `ranks` is given."""
    started = ["mpiexec", "-n", str(ranks)] if ranks else []
    arguments = [name, "--quick", "--seeds", str(seeds), "--device", "cpu"]
    return [*started, sys.executable, "-c", PROCESS, *arguments]


def begin(folder, command, slow=0.0):
    """Start a command in a folder; slow: additional seconds per training step."""
    folder.mkdir(exist_ok=True)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    own = environment() | {"SLOW": str(slow)}
    return subprocess.Popen(command, cwd=folder, env=own, **pipes)
