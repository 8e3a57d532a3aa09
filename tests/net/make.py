"""Make the reference data of the tests: `python tests/net/make.py [runs] [help] [names]`.

runs: tiny old runs and their results. help: help texts of all commands. names: public names
and their parameters. Without arguments, make all three. Runs must stay old: remake them only to
add one.
"""

import hashlib
import importlib
import json
import shutil
import sys
import tempfile
from contextlib import chdir
from pathlib import Path

import drive
import numpy as np
from PIL import Image

META = "minicaps.json"  # the text in a checkpoint
LARGE, KEPT = 8000, 1500  # size above which an array is thinned out, and how many numbers stay
COMMON = ("--limit", "40", "--batch-size", "8", "--epochs", str(drive.EPOCHS), "--quiet")
CAPSNET = ("--size", "16", "--optimizer", "sgd")
CAPSULE_CNN = ("--model", "capsule-cnn", "--size", "14", "--optimizer", "sgd")
RUNS = {
    "capsnet-agreement": ("--optimizer", "adam", "--shift", "1"),  # on whole images
    "capsnet-leaky": (*CAPSNET, "--routing", "leaky", "--update", "recompute"),
    "capsnet-distance": (*CAPSNET, "--routing", "distance", "--gradient", "stop"),
    "capsnet-learned": (*CAPSNET, "--routing", "learned", "--reconstruction", "0"),
    "capsule-cnn-agreement": CAPSULE_CNN,
    "capsule-cnn-distance": (*CAPSULE_CNN, "--routing", "distance", "--loss", "cross-entropy"),
    "matrix-capsnet": ("--model", "matrix-capsnet", "--size", "16"),
    "pooling-cnn": ("--model", "pooling-cnn", "--size", "14", "--optimizer", "sgd"),
    "baseline-cnn": ("--model", "baseline-cnn", "--size", "4", "--optimizer", "sgd"),
    "dense-cnn": ("--model", "dense-cnn", "--size", "16", "--clip", "1"),
    "several-classes": (*CAPSNET, "--compose", "2"),
    "batch-norm": (*CAPSULE_CNN, "--batch-norm"),
    "matrix-batch-norm": (
        *("--model", "matrix-capsnet", "--batch-norm", "--size", "16"),
        *("--inverse-temperature", "0.5", "--precision", "float64"),
    ),
    "float64": (*CAPSNET, "--precision", "float64", "--schedule", "cosine"),
    "own-pictures": ("--data", drive.PICTURES, "--optimizer", "adam"),
    "seeds": (*CAPSNET, "--seeds", "2"),
}
# With the names of modules without __all__
PUBLIC = {
    "minicaps": None,
    "minicaps.ops": None,
    "minicaps.routing": None,
    "minicaps.clustering": None,
    "minicaps.nn": None,
    "minicaps.models": None,
    "minicaps.optim": ("Adam", "SCHEDULES", "SGD", "clip_gradient_norm", "gradient_norm"),
    "minicaps.gradcheck": ("GradientError", "check_gradients"),
    "minicaps.data": None,
    "minicaps.plotting": None,
    "minicaps.backend": ("Device", "DeviceError", "array_module", "choose_device", "to_host"),
    "minicaps.graph": ("no_grad",),
}
WITH_PARAMETERS = ("minicaps.ops", "minicaps.routing", "minicaps.clustering", "minicaps.gradcheck")
MORE_PARAMETERS = (("minicaps.models", "build"), ("minicaps.data", "load"))


def main(wanted):
    makers = {"runs": make_runs, "help": make_help, "names": make_names}
    for what in wanted or makers:
        makers[what]()


def _write(name, tables):
    """Write {name: {name: value}} as JSON, one line per value."""
    parts = [
        json.dumps(name)
        + ": {\n"
        + ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in table.items())
        + "\n}"
        for name, table in tables.items()
    ]
    (drive.HERE / name).write_text("{\n" + ",\n".join(parts) + "\n}\n")


# ---- runs


def make_runs():
    _make_pictures(drive.HERE / drive.PICTURES)
    shutil.rmtree(drive.RUNS, ignore_errors=True)
    drive.shrink()
    with tempfile.TemporaryDirectory() as folder, chdir(folder), drive.without_figures():
        shutil.copytree(drive.HERE / drive.PICTURES, drive.PICTURES)
        for name, words in RUNS.items():
            limit = COMMON[2:] if name == "own-pictures" else COMMON
            drive.done("minicaps.train", *limit, *words, "--device", "cpu", "--out", name)
            files = [path for path in Path(name).rglob("*") if path.is_file()]
            for path in sorted(files, key=lambda path: path.suffix != ".npz"):
                _make_small(path, f"{Path(folder).resolve()}/")
            shutil.copytree(name, drive.RUNS / name)
    _write("expected.json", {name: drive.ask("measure", name) for name in RUNS})


def _make_pictures(folder):
    """Draw images of three classes: a horizontal bar, a vertical bar, and a square."""
    rng = np.random.default_rng(0)
    shutil.rmtree(folder, ignore_errors=True)
    for name, (height, width) in {"across": (3, 10), "down": (10, 3), "square": (8, 8)}.items():
        (folder / name).mkdir(parents=True)
        for k in range(12):
            picture = rng.integers(0, 4, (16, 16)).astype(np.uint8) * 10
            top, left = rng.integers(1, 5, 2)
            picture[top : top + height, left : left + width] = 200
            Image.fromarray(picture).save(folder / name / f"{k}.png", optimize=True)


def _make_small(path, home):
    """Round and compress a checkpoint, and remove the path of the temporary folder from a file."""
    if path.suffix == ".npz":
        with np.load(path) as file:
            arrays = {name: file[name] for name in file.files}
        text = arrays.pop(META).tobytes().decode().replace(home, "")
        arrays = {name: _rounded(array) for name, array in arrays.items()}
        np.savez_compressed(path, **{META: np.frombuffer(text.encode(), np.uint8)}, **arrays)
        return
    text = path.read_text().replace(home, "")
    if path.name == "summary.json":
        summary = json.loads(text)
        del summary["machine"]["platform"]
        if "best_sha256" in summary:
            best = path.with_name("best.npz").read_bytes()
            summary["best_sha256"] = hashlib.sha256(best).hexdigest()
        text = json.dumps(summary, indent=2) + "\n"
    path.write_text(text)


def _rounded(array):
    """Round to five bits; keep only the largest numbers of a large array, scaled to its norm."""
    if array.dtype.kind != "f":
        return array
    if array.size > LARGE and array.any():
        least = np.partition(abs(array), -KEPT, axis=None)[-KEPT]
        kept = np.where(abs(array) >= least, np.sign(array), 0)
        array = (kept * (np.linalg.norm(array) / np.linalg.norm(kept))).astype(array.dtype)
    share, power = np.frexp(array)
    return np.ldexp(np.round(share * 32) / 32, power).astype(array.dtype)


# ---- help, names


def make_help():
    folder = drive.HERE / "help"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, text in drive.ask("help").items():
        (folder / name).write_text(text)


def make_names():
    found = {}
    for name, public in PUBLIC.items():
        module = importlib.import_module(name)
        found[name] = {
            one: drive.parameters(getattr(module, one))
            if name in WITH_PARAMETERS or (name, one) in MORE_PARAMETERS
            else None
            for one in sorted(public or module.__all__)
        }
    _write("public_names.json", found)


if __name__ == "__main__":
    sys.path.insert(0, str(drive.ROOT))
    main(sys.argv[1:])
