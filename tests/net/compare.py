"""Compare two commits bit by bit: `python tests/net/compare.py OLD NEW [--cores N]`.

Each commit trains the same tiny networks for 20 steps in its own process; both processes run at the
same time, each on N cores. One line is printed for every combination whose results differ, and the
exit code is then 1. The combinations cover every model with every routing and loss, in both
precisions, and every other option that affects a number at least once. Errors are compared, too.
"""

import argparse
import csv
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir
from itertools import product
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STEPS, BATCH = 20, 8
COMMON = f"--limit {STEPS * BATCH} --batch-size {BATCH} --epochs 1 --validation 0"
LOSSES = ("margin", "spread", "cross-entropy")
SIZES = {
    "capsnet": 16,
    "capsule-cnn": 14,
    "matrix-capsnet": 16,
    "pooling-cnn": 14,
    "baseline-cnn": 4,
    "dense-cnn": 16,
}
ROUTINGS = ("agreement", "leaky", "distance", "learned")
ROUTED = {"capsnet": ROUTINGS, "capsule-cnn": ROUTINGS}
LOGITS = ("baseline-cnn", "dense-cnn")
SQUASHES = ("paper", "half", "tanh", "exp", "rational", "none")
# Each option once, in both precisions
MORE = {
    "capsnet": (
        "--update recompute",
        "--update spherical",
        "--gradient stop",
        "--update recompute --gradient implicit --iterations 9",
        "--update spherical --gradient implicit --iterations 9",
        "--update spherical --gradient stop",
        "--routing leaky --update recompute",
        "--routing leaky --update spherical",
        "--routing leaky --gradient stop",
        "--routing leaky --update recompute --gradient implicit --iterations 9",
        "--routing distance --gradient stop",
        "--routing distance --gradient implicit --iterations 9",
        "--routing distance --inverse-temperature 3",
        "--inverse-temperature 2",
        "--iterations 1",
        "--iterations 2",
        "--iterations 5",
        *(f"--squash {kind}" for kind in SQUASHES),
        "--primary-squash half",
        "--reconstruction 0",
        "--reconstruction 0.5",
        "--compose 2",
        "--compose 2 --layout beside",
        "--compose 2 --reconstruction 0",
        "--compose 3",
        "--optimizer sgd",
        "--optimizer sgd --clip 0.1 --weight-decay 0.01",
        "--clip 0.1",
        "--weight-decay 0.01",
        "--clip 0.1 --weight-decay 0.01 --schedule cosine --shift 2",
        "--schedule constant",
        "--schedule cosine",
        "--decay 0.1",
        "--shift 2",
        "--seed 3",
        "--validation 16",
    ),
    "capsule-cnn": (
        "--batch-norm",
        "--update accumulate",
        "--update recompute",
        "--gradient stop",
        "--gradient implicit --iterations 9",
        "--routing leaky --gradient implicit --iterations 9",
        "--routing distance --gradient implicit --iterations 9",
        "--squash paper",
        "--compose 2",
        "--size 17",
    ),
    "matrix-capsnet": (
        "--batch-norm",
        "--gradient stop",
        "--iterations 1",
        "--iterations 2",
        "--inverse-temperature 0.5",
        "--size 20",
    ),
    "pooling-cnn": ("--batch-norm", "--compose 2", "--optimizer sgd --schedule cosine"),
    "baseline-cnn": ("--batch-norm", "--dropout 0.2", "--optimizer sgd"),
    "dense-cnn": ("--compose 2", "--shift 2", "--optimizer sgd --clip 0.1"),
}
EM_STEPS = ("gmm", "activation", "input-activation", "complete")  # not available as command options


def combinations():
    """Yield the command lines, without the arguments common to all."""
    lines = []
    for model in SIZES:
        ways = [f"--routing {routing}" for routing in ROUTED.get(model, ())] or [""]
        losses = LOSSES[-1:] if model in LOGITS else LOSSES
        ways = [f"{way} --loss {loss}" for way, loss in product(ways, losses)]
        lines += [f"--model {model} {way}" for way in (*ways, *MORE[model])]
    for line, precision in product(lines, ("float32", "float64")):
        yield f"{' '.join(line.split())} --precision {precision}"


# ---- in the process of a commit


def train_all(root, cores):
    """Return {combination: result} for the version of minicaps in the folder `root`."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    import minicaps

    if root not in Path(minicaps.__file__).parents:
        raise RuntimeError(f"this is {minicaps.__file__}, not that in {root}")
    import drive

    drive.shrink()
    with tempfile.TemporaryDirectory() as folder, chdir(folder), drive.without_figures():
        results = {line: _train(drive, line) for line in combinations()}
        for case in product(EM_STEPS, ("unrolled", "stop"), ("float32", "float64")):
            results[f"routing.em {' '.join(case)}"] = _tried(_train_em, *case)
    return results


def _tried(function, *arguments):
    try:
        return function(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _train(drive, line):
    model = line.split()[1]
    size = "" if "--size" in line else f"--size {SIZES[model]}"
    words = f"{COMMON} {size} {line} --device cpu --quiet --out run".split()
    found = _tried(drive.command, "minicaps.train", *words)
    if isinstance(found, str):
        return found
    code, _, err = found
    if code:
        return f"exit code {code}: {err.strip().splitlines()[-1]}"
    try:
        return _tried(_read, Path("run"))
    finally:
        shutil.rmtree("run")


def _read(run):
    """Return checksums of all arrays of a run, and its metrics at full precision."""
    import numpy as np

    with np.load(run / "last.npz") as file:
        arrays = {name: file[name] for name in file.files if not name.endswith(".json")}
    with open(run / "metrics.csv", newline="") as file:
        rows = [{k: v for k, v in row.items() if "second" not in k} for row in csv.DictReader(file)]
    summary = json.loads((run / "summary.json").read_text())
    steps = {name: int(value) for name, value in arrays.items() if name.endswith("/steps")}
    return {
        "parameters": _checksum(arrays, "model/"),
        "optimizer": _checksum(arrays, "optimizer/"),
        "steps": max(steps.values()),
        "metrics": rows,
        "test": [summary["test_loss"], summary["test_right"]],
    }


def _checksum(arrays, start=""):
    total = hashlib.sha256()
    for name in sorted(arrays):
        if name.startswith(start):
            array = arrays[name]
            total.update(f"{name} {array.dtype} {array.shape}".encode())
            total.update(array.tobytes())
    return total.hexdigest()


def _train_em(step, gradient, precision):
    """Train the inputs of `routing.em` directly, because no network uses every kind of step."""
    import numpy as np

    from minicaps import Tensor, ops, optim, routing

    rng = np.random.default_rng(0)
    shapes = {"votes": (4, 12, 3, 5)}
    if step != "gmm":
        shapes |= {"beta_u": (3,), "beta_a": (3,)}
    if step in ("input-activation", "complete"):
        shapes["activations"] = (4, 12)
    learned = {
        name: Tensor(rng.normal(size=shape).astype(precision), requires_grad=True)
        for name, shape in shapes.items()
    }
    target = Tensor(rng.normal(size=(4, 3, 5)).astype(precision))
    optimizer = optim.Adam(learned, 0.01)
    for _ in range(STEPS):
        given = dict(learned)
        if "activations" in given:
            given["activations"] = ops.sigmoid(given["activations"])
        routed = routing.em(given.pop("votes"), **given, step=step, gradient=gradient)
        difference = routed.poses - target
        loss = ops.mean(difference * difference) + ops.mean(routed.activations)
        for tensor in learned.values():
            tensor.grad = None
        loss.backward()
        optimizer.step()
    arrays = {name: tensor.numpy() for name, tensor in learned.items()}
    return {"parameters": _checksum(arrays), "steps": STEPS, "loss": loss.item()}


# ---- in the comparing process


def results_of(commit, cores):
    """Train with the code of a commit, in a process restricted to `cores`; return the results."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        archive = subprocess.run(
            ["git", "-C", ROOT, "archive", "--format=tar", commit_of(commit), "minicaps"],
            capture_output=True,
            check=True,
        )
        subprocess.run(["tar", "-x", "-C", root], input=archive.stdout, check=True)
        threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), str(len(cores)))
        line = [sys.executable, __file__, "--train", root, *map(str, cores)]
        done = subprocess.run(
            line,
            env=os.environ | threads | {"PYTHONPATH": str(root)},
            cwd=root,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    return json.loads(done.stdout)


def commit_of(name):
    line = ["git", "-C", ROOT, "rev-parse", "--verify", f"{name}^{{commit}}"]
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout.strip()


def difference(old, new):
    """Describe how two results differ, or return None if they are equal."""
    if old == new:
        return None
    if isinstance(old, dict) and isinstance(new, dict):
        return ", ".join(sorted(k for k in old.keys() | new.keys() if old.get(k) != new.get(k)))
    return " | ".join("trained" if isinstance(one, dict) else one for one in (old, new))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("commits", nargs=2, metavar="COMMIT")
    parser.add_argument("--cores", type=int, metavar="N", help="of each (default: half of all)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results there")
    options = parser.parse_args()
    every = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    count = min(options.cores or max(1, len(every) // 2), len(every))
    shares = [every[:count], every[-count:]]
    with ThreadPoolExecutor(2) as pool:
        old, new = pool.map(results_of, options.commits, shares)
    if options.json:
        results = {line: [old[line], new[line]] for line in old}
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    differ = {line: text for line in old if (text := difference(old[line], new[line]))}
    for line, text in differ.items():
        print(f"{line:90} {text}")
    untrained = {line: old[line] for line in old if old[line] == new[line] and _failed(old[line])}
    for line, text in untrained.items():
        print(f"{line:90} both: {text}")
    print(
        f"{len(old)} combinations, {len(differ)} differ;"
        f" {len(untrained)} are trained by neither commit"
    )
    return 1 if differ else 0


def _failed(result):
    return isinstance(result, str) or result["steps"] < STEPS - 2  # fewer steps with validation


if __name__ == "__main__":
    if sys.argv[1:2] == ["--train"]:
        root, *cores = sys.argv[2:]
        print(json.dumps(train_all(Path(root), list(map(int, cores)))))
    else:
        sys.exit(main())
