"""A network with two scores for images of two pixels, and a lab to attack it in."""

from pathlib import Path

import numpy as np

from minicaps.backend import choose_device
from minicaps.data import Split
from minicaps.experiments.lab import Lab
from minicaps.nn import Module
from minicaps.routing import Routed
from minicaps.tensor import Tensor

LAB = Lab(Path("runs"), True, choose_device("cpu"), None, stop=False)


class Linear(Module):
    """A score and its negative, each linear in the two pixels of the image."""

    loss, logits = "cross-entropy", True

    def __init__(self):
        self.slope = Tensor(np.array([[1, -1], [-2, 2]], np.float32), requires_grad=True)

    def forward(self, images):
        return Routed(None, images.reshape(len(images), 2) @ self.slope, None)


def two():
    images = np.array([[0.5, 0.5], [0.9, 0.02]], np.float32).reshape(2, 1, 1, 2)
    return Split(images, np.array([0, 1]))
