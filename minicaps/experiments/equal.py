"""Choose the epochs at which networks are equally accurate, so that they can be compared."""

import numpy as np

from minicaps.runs import checkpoint

# Networks with the same convolutions and about as many parameters
NETWORKS = {
    "capsules": {"model": "capsnet", "reconstruction": 0.0},
    "cnn": {"model": "dense-cnn"},
}
KEY = {
    "capsules": "the small CapsNet without its decoder",
    "cnn": "the same convolutions, then linear layers; about as many parameters",
}


def validation_curve(folder):
    """Validation accuracy after each epoch of the network in a run folder."""
    _, meta = checkpoint.load(folder / "last.npz", needs=("progress",))
    return [row["validation_accuracy"] for row in meta["progress"]["history"]]


def epochs(curves):
    """Return {network: epoch, from 1}: the epoch at which its accuracy is closest to the highest
    one that every network reaches; ties go to the first. curves: {network: accuracy on held-out
    images after each epoch}."""
    reached = min(max(curve) for curve in curves.values())
    return {
        name: 1 + int(np.argmin(np.abs(np.subtract(curve, reached))))
        for name, curve in curves.items()
    }
