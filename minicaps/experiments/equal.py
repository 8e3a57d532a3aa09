"""Choose the epochs and learning rates with which different networks are compared."""

import numpy as np

from minicaps.cli.sharing import all_of
from minicaps.runs import checkpoint

# Networks with the same convolutions and about as many parameters
NETWORKS = {
    "capsules": {"model": "capsnet", "reconstruction": 0.0},
    "cnn": {"model": "dense-cnn"},
}
DECIDES = 0  # the seed whose networks decide on the learning rate of all seeds
KEY = {
    "capsules": "the small CapsNet without its decoder",
    "cnn": "the same convolutions, then linear layers; about as many parameters",
}


def history(folder):
    """Read losses and validation accuracies from a run folder: {name: value after each epoch}."""
    _, meta = checkpoint.load(folder / "last.npz", needs=("progress",), groups=())
    names = ("train_loss", "validation_loss", "validation_accuracy")
    return {name: [row[name] for row in meta["progress"]["history"]] for name in names}


def in_the_end(folder):
    """Score a run by its accuracy on held-out images after the last epoch, then by its loss."""
    found = history(folder)
    return found["validation_accuracy"][-1], -found["validation_loss"][-1]


def best_rate(train, rates, score=in_the_end, decided=None):
    """Train a network with each learning rate, and return the best rate and {rate: score}.

    A single rate is returned at once, without scores. Nothing is trained either if seed `DECIDES`
    has been measured already, possibly on another machine.

    train: function that trains the network of seed `DECIDES` with a given rate and returns its run
    folder. score: function of a run folder: by default a pair, see `in_the_end`, otherwise a share
    of held-out images. The highest score is best, and the first of equal ones. decided: results of
    seed `DECIDES`, if it has been measured.
    """
    if decided:
        return decided["rate"], decided["searched"]
    if len(rates) == 1:
        return rates[0], {}
    scores = {rate: score(folder) for rate, folder in all_of(train, rates).items()}
    return max(scores, key=scores.get), scores


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
