"""Drive minicaps as its users do: by `python -m` commands and a few public names.

Only `load_model` imports a name that is not public. Run as a script, in a separate process because
the commands change signals and threads, this module prints JSON:

    python tests/net/drive.py measure NAME [figures]    results and behavior of an old run
    python tests/net/drive.py help                      the help text of every command
"""

import contextlib
import csv
import inspect
import io
import json
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RUNS, PICTURES = HERE / "runs", "shapes"  # the custom images are stored beside the runs
EPOCHS = 2  # epochs of the old runs
# Replaces the preset `small`
CAPSNET = {
    "convolutions": ((4, 5, 2),),
    "primary": (2, 4, 3, 2),
    "capsule_size": 4,
    "hidden": (8,),
}
MATRIX = (8, 2, 3, 3)
FIGURES = ("confusion", "curves", "members", "reconstructions", "worst")  # slow to draw
VOLATILE = {"checkpoint", "command", "data", "device", "minicaps", "notes"}  # of evaluation.json
SUBCOMMANDS = ("list", "fetch", "export", "cache", "strokes", "mnist", "fashion-mnist", "PATH")
COMMANDS = (
    *([f"minicaps.{name}"] for name in ("train", "evaluate", "predict", "plot", "export", "data")),
    *(["minicaps.data", name] for name in SUBCOMMANDS),
    *(["minicaps.bench"], ["minicaps.experiments"], ["lessons"]),
)


def shrink():
    """Make the preset `small` tiny and shrink the test set, in this process."""
    from minicaps import models
    from minicaps.data import strokes

    models.CAPSNET_PRESETS["small"] = CAPSNET
    models.MATRIX_PRESETS["small"] = MATRIX
    strokes.TEST_SIZE = 30


@contextlib.contextmanager
def without_figures():
    from minicaps import plotting

    drawing = {name: getattr(plotting, name) for name in FIGURES}
    for name in FIGURES:
        setattr(plotting, name, lambda *_, **__: None)
    try:
        yield
    finally:
        for name, function in drawing.items():
            setattr(plotting, name, function)


def command(module, *words):
    """Run `python -m module words` in this process; return exit code, output and errors."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    before, code = sys.argv, 0
    sys.argv = [module, *map(str, words)]
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            warnings.catch_warnings(),
        ):
            warnings.filterwarnings("ignore", module="runpy")
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as stopped:
        code = stopped.code or 0
    finally:
        sys.argv = before
    return code, *(stream.buffer.getvalue().decode() for stream in (out, err))


def done(*words):
    """Run a command that must succeed; return its output."""
    code, out, err = command(*words)
    if code:
        raise RuntimeError(f"{' '.join(map(str, words))}: exit code {code}\n{out}{err}")
    return out


def load_model(path):
    """Load the model of a checkpoint. Only this function knows the module, which may move."""
    from minicaps.backend import choose_device
    from minicaps.runs.building import load_model

    return load_model(path, choose_device("cpu"))


# ---- old runs


def names():
    """Return the names of the old runs."""
    return sorted(path.name for path in RUNS.iterdir())


def measure(name, figures=False):
    """Predict, evaluate, resume and draw with an old run; return the results."""
    shrink()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        shutil.copytree(RUNS / name, name)
        shutil.copytree(HERE / PICTURES, PICTURES)
        one = f"{name}/seed-0" if Path(name, "seed-0").exists() else name  # one of several seeds
        with without_figures():
            result = {
                "activations": _activations(Path(one, "best.npz")),
                "predict": _predict(one),
                "evaluate": _evaluate(one),
                "resume": _resume(name),
            }
        if figures:
            result["plot"] = _plot(one)
        return result


def _activations(path):
    from minicaps import Tensor, no_grad

    model = load_model(path).eval()
    images = np.random.default_rng(0).random((4, *model.config["input_shape"]))
    with no_grad():
        routed = model(Tensor(images.astype(model.parameters()[0].dtype)))
    return routed.activations.numpy().tolist()


def _predict(run):
    """Return the scores of two images: light ink at another size, and dark ink on light ground."""
    from PIL import Image

    rng = np.random.default_rng(0)
    light = rng.integers(0, 40, (24, 20)).astype(np.uint8)
    light[5:18, 8:11] += 200
    light[5:8, 8:16] += 200 - light[5:8, 8:16]
    dark = 255 - rng.integers(0, 40, (16, 16)).astype(np.uint8)
    dark[4:12, 4:12] -= 200
    for name, picture in (("light", light), ("dark", dark)):
        Image.fromarray(picture).save(f"{name}.png")
    words = ("light.png", "dark.png", "--json", "--no-figures", "--device", "cpu")
    return [json.loads(line) for line in done("minicaps.predict", run, *words).splitlines()]


def _evaluate(run):
    done("minicaps.evaluate", run, "--quiet", "--device", "cpu")
    result = json.loads(Path(run, "evaluation", "evaluation.json").read_text())
    with open(Path(run, "evaluation", "predictions.csv"), newline="") as file:
        answers = [row[:3] for row in csv.reader(file)]
    return {key: result[key] for key in result if key not in VOLATILE} | {"answers": answers}


def _resume(run):
    """Train for one more epoch; return the row that it adds to metrics.csv."""
    words = ("--resume", run, "--epochs", EPOCHS + 1, "--device", "cpu", "--quiet")
    done("minicaps.train", *words)
    last = Path(run, "seed-1") if Path(run, "seed-1").exists() else Path(run)
    with open(last / "metrics.csv", newline="") as file:
        row = {key: float(value) for key, value in list(csv.DictReader(file))[-1].items()}
    return {key: row[key] for key in row if key not in ("seconds", "images_per_second")}


def _plot(run):
    from minicaps.models import inspection

    inspection.FAINT = inspection.VISIBLE = 0  # the tiny networks draw almost uniform images
    done("minicaps.plot", run, "--device", "cpu")
    return sorted(path.name for path in Path(run, "figures").iterdir() if path.stat().st_size)


# ---- help, and public names


def helps():
    """Return {file name: help text} for every command."""
    return {file_name(words): done(*words, "--help") for words in COMMANDS}


def file_name(words):
    return "-".join(words).removeprefix("minicaps.") + ".txt"


def parameters(function):
    """Return {name: [kind, default]} for the parameters of a function or class, or None."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # not a function
        return None
    return {
        p.name: [p.kind.description, "required" if p.default is p.empty else repr(p.default)]
        for p in found
    }


# ---- in a separate process


def environment(**more):
    return os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100", "NO_COLOR": "1", **more}


def ask(*words):
    """Run this file in another process; return its parsed output."""
    line = [sys.executable, __file__, *words]
    asked = subprocess.run(line, env=environment(), capture_output=True, text=True, timeout=300)
    if asked.returncode:
        raise RuntimeError(asked.stderr)
    return json.loads(asked.stdout)


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    actions = {"measure": measure, "help": helps}
    print(json.dumps(actions[what](*rest)))
