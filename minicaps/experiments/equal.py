"""Choose the epochs and learning rates with which different networks are compared."""

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
    return [row["validation_accuracy"] for row in _history(folder)]


def _history(folder):
    _, meta = checkpoint.load(folder / "last.npz", needs=("progress",), groups=())
    return meta["progress"]["history"]


def in_the_end(folder):
    """Score a run by its accuracy on held-out images after the last epoch, then by its loss."""
    last = _history(folder)[-1]
    return last["validation_accuracy"], -last["validation_loss"]


def best_rate(train, rates, score=in_the_end):
    """Train a network with each learning rate, and return the best rate and its run folder.

    train: function that trains a network with a given rate and returns its run folder.
    score: function of a run folder. The highest score is best, and the first of equal scores.
    """
    folders = {rate: train(rate) for rate in rates}
    best = max(rates, key=lambda rate: score(folders[rate]))
    return best, folders[best]


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
