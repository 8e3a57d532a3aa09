"""Choose epochs at which different networks are equally accurate and can be compared."""

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
    """Read the validation accuracy after each epoch from a run folder."""
    _, meta = checkpoint.load(folder / "last.npz", needs=("progress",), groups=())
    return [row["validation_accuracy"] for row in meta["progress"]["history"]]


def epochs(curves):
    """Return a dictionary {network: epoch} of the epochs of equal accuracy, counted from 1.

    A network's accuracy at the chosen epoch is closest to the highest accuracy that every network
    reaches. If several epochs are equally close, the first one is chosen.

    curves: {network: accuracy on held-out images after each epoch}.
    """
    reached = min(max(curve) for curve in curves.values())
    return {
        name: 1 + int(np.argmin(np.abs(np.subtract(curve, reached))))
        for name, curve in curves.items()
    }
