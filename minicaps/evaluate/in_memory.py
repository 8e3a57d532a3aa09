"""Evaluate a network on images in memory."""

from minicaps.backend import Array
from minicaps.data.dataset import Split
from minicaps.data.own.from_memory import targets
from minicaps.errors import DataError
from minicaps.evaluate.report import Evaluation
from minicaps.models import Network
from minicaps.runs.inference import classify


def evaluate(model: Network, images: Array | list, labels: Array) -> dict:
    """Measure a network on images and labels in memory; the network is unchanged.

    images: as in `minicaps.models.Network.predict`. labels (n,): names of the network's classes, or
    their numbers; multi-label, (n, J) zeros and ones.

    Returns what `python -m minicaps.evaluate` writes to evaluation.json: "accuracy",
    "accuracy_interval_95" (Wilson), "loss", "classes" (a row each), "confusion" and more. Raises
    `DataError` for images or labels that do not fit the network.
    """
    images = model.preprocessing.batch(images)
    if len(images) == 0:
        raise DataError("there are no images to evaluate on")
    split = Split(images, targets(labels, len(images), model.class_names))
    was_training = model.training
    try:
        return Evaluation(model, split, classify(model.eval(), split)).measure()
    finally:
        model.train(was_training)
