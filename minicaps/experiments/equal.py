"""Compare networks where they are equally good at what they learned: which epoch of each."""

import numpy as np

from minicaps.runs import checkpoint

# With the same convolutions and about as many parameters
NETWORKS = {
    "capsules": {"model": "capsnet", "reconstruction": 0.0},
    "cnn": {"model": "dense-cnn"},
}
KEY = {
    "capsules": "the small CapsNet without its decoder",
    "cnn": "the same convolutions, then linear layers; about as many parameters",
}


def validation_curve(folder):
    """The accuracy on validation pictures after each epoch of the network in a run folder."""
    _, meta = checkpoint.load(folder / "last.npz", needs=("progress",))
    return [row["validation_accuracy"] for row in meta["progress"]["history"]]


def epochs(curves):
    """{network: its epoch, from 1} at equal accuracy: that which is nearest to the highest one that
    every network reaches; of equally near ones, the first. curves: {network: accuracy on held-out
    pictures after each epoch}."""
    reached = min(max(curve) for curve in curves.values())
    return {
        name: 1 + int(np.argmin(np.abs(np.subtract(curve, reached))))
        for name, curve in curves.items()
    }
