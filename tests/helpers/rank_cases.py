"""Train many small networks, one after the other, on as many ranks as mpiexec starts.

`mpiexec -n RANKS python tests/helpers/rank_cases.py FILE CASE…` trains each case twice for 21 steps
in float64, with all ranks together and with each rank alone, and writes the parameters and
measurements to FILE. The last batch of each epoch has two images, fewer than three ranks.
"""

import hashlib
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
from tiny_runs import NETWORK

from minicaps import data, models, ranks
from minicaps.backend import choose_device
from minicaps.cli.blas import one_blas_thread
from minicaps.data import strokes
from minicaps.models.losses import LOSSES
from minicaps.routing.registry import ROUTINGS
from minicaps.train.options import complete
from minicaps.train.progress import Display
from minicaps.train.trainer import Trainer

IMAGES, BATCH, EPOCHS = 50, 8, 3
BASE = {"batch_size": BATCH, "epochs": EPOCHS, "precision": "float64", "out": "", "quiet": True}
BASE |= {"validation": 0, "device": "cpu", "learning_rate": 0.003}
MORE = {
    "capsnet a batch smaller than the ranks": {"batch_size": 2},
    "capsnet augmented": {"shift": 2, "rotate": 20.0, "zoom": 0.2, "brightness": 0.3},
    "capsnet balanced and clipped": {"balance": True, "clip": 0.5},
    "capsnet composed": {"compose": 2, "batch_size": 7},
    "capsnet composed without a decoder": {"compose": 3, "reconstruction": 0.0},
    "capsnet multi-label": {},
    "capsnet implicit": {"routing": "distance", "gradient": "implicit", "iterations": 40}
    | {"inverse_temperature": 0.1},  # so that it converges
    "dense-cnn composed": {"compose": 2},
    "dense-cnn multi-label": {},
    "baseline-cnn dropout and batch norm": {"dropout": 0.4, "batch_norm": True},
    "pooling-cnn batch norm": {"batch_norm": True},
    "capsule-cnn batch norm": {"batch_norm": True},
    "matrix-capsnet batch norm": {"batch_norm": True},
}


def cases():
    """Return {name: options} with every model, its routings and its losses, and more."""
    found = {}
    for model in models.MODELS:
        known = models.options_of(model)
        routings = [*ROUTINGS, "learned"] if "routing" in known else [None]
        for routing in routings:
            for loss in LOSSES:
                options = {"model": model, "loss": loss}
                if routing:
                    options["routing"] = routing
                try:
                    complete(BASE | options)
                except ValueError:  # a loss that does not suit the model
                    continue
                found[" ".join(filter(None, (model, routing, loss)))] = options
    return found | {name: {"model": name.split()[0], **own} for name, own in MORE.items()}


def dataset(name, options):
    """Return the images of a case: small ones for networks that are slow or grow with the image."""
    size = {"capsule-cnn": 14, "pooling-cnn": 14, "baseline-cnn": 4}.get(options.get("model"))
    whole = data.load("strokes", limit=IMAGES, seed=0, size=size, compose=options.get("compose"))
    if "multi-label" not in name:
        return whole
    # Zero to four classes in an image, so ranks have different numbers of them
    rng = np.random.default_rng(1)
    labels = rng.random((IMAGES, 10)) < rng.choice([0.0, 0.1, 0.3], (IMAGES, 1))
    split = data.Split(whole.train.images, labels.astype(np.uint8))
    return data.Dataset("strokes", split, split, whole.class_names)


def train(name, options, folder):
    """Train one case; return its arrays."""
    made = complete(BASE | options | {"out": str(folder)})
    device, display = choose_device("cpu"), Display("tests", quiet=True)
    trainer = Trainer(made, dataset(name, options), device, folder, display, False)
    found, ended = {}, []
    for epoch in range(EPOCHS):
        trainer.epoch, trainer.batch = epoch, 0
        trainer.train_epoch()
        ended.append(trainer.learner.sums())
        trainer.learner.start_epoch()
    found |= trainer.model.state_dict()
    digest = hashlib.sha256(b"".join(a.tobytes() for a in found.values())).hexdigest()
    assert len(set(ranks.gather(digest))) == 1, f"{name}: the ranks have different parameters"
    loss, right, counts = trainer.evaluate(trainer.model, trainer.data.train, progress=None)
    measured = {"sums": ended, "loss": loss, "counts": counts, "right": right}
    return found | {key: np.array(value) for key, value in measured.items()}


def main(file, *names):
    strokes.TEST_SIZE = 10
    models.CAPSNET_PRESETS["small"] = NETWORK
    models.MATRIX_PRESETS["small"] = (8, 2, 3, 3)
    known, arrays = cases(), {}
    for options in known.values():
        if options["model"] == "matrix-capsnet":  # faster, EM amplifies any rounding error
            options["learning_rate"] = 3e-4
    for name in names or known:
        with tempfile.TemporaryDirectory() as folder, one_blas_thread():
            found = {"together": train(name, known[name], Path(folder))}
            with ranks.alone():
                found["alone"] = train(name, known[name], Path(folder))
        arrays |= {
            f"{way}/{name}/{key}": array for way in found for key, array in found[way].items()
        }
    if ranks.is_root():
        np.savez(file, **arrays)


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(__file__))
    main(*sys.argv[1:])
