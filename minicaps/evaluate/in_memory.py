"""Evaluate a network on images in memory."""

from minicaps.backend import Array
from minicaps.cli.blas import one_blas_thread
from minicaps.data.dataset import Split
from minicaps.data.own.from_memory import targets
from minicaps.errors import DataError
from minicaps.evaluate.report import Evaluation
from minicaps.models import Network
from minicaps.models.base import evaluating
from minicaps.runs.inference import classify


def evaluate(model: Network, images: Array | list, labels: Array) -> dict:
    """Evaluate a network on images and labels in memory without changing the network.

    Parameters
    ----------
    model
        Network to evaluate.
    images
        Images in any form that `minicaps.models.Network.predict` accepts.
    labels
        Names or indices (n,) of the network's classes, or zeros and ones (n, J) for a multi-label
        network.

    Returns
    -------
    dict
        The results that `python -m minicaps.evaluate` writes to evaluation.json: "accuracy",
        "accuracy_interval_95" (Wilson), "loss", "classes" (a row for each), "confusion" and more.

    Raises
    ------
    DataError
        If the images or labels do not fit the network.
    """
    if not isinstance(model, Network):
        raise TypeError(f"expected a network, as load_model gives one, not {type(model).__name__}")
    images = model.expected_images().batch(images)
    if len(images) == 0:
        raise DataError("there are no images to evaluate: pass at least one")
    labels = targets(labels, len(images), model.class_names, multi=model.multi)
    split = Split(images, labels)
    with evaluating(model), one_blas_thread():
        return Evaluation(model, split, classify(model, split)).measure()
