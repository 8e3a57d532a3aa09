"""The steps that `minicaps.bench` times: training and inference of CapsNet, as its users do them.

A training step is forward, backward and Adam on one batch, with margin and reconstruction loss;
inference is forward, without the decoder, to the lengths of the class capsules.
"""

from typing import NamedTuple

import numpy as np

from minicaps import Tensor, models, no_grad, ops
from minicaps.optim import Adam

IMAGE, CLASSES = (1, 28, 28), 10
KINDS = {"train": "training step", "infer": "inference"}


class Case(NamedTuple):
    """What is timed: a key of KINDS, a preset of CapsNet, and how many images a step has."""

    kind: str
    preset: str
    batch: int

    @property
    def train(self):
        return self.kind == "train"

    def material(self):
        """Make the network, and random images and labels: the same for all who are compared."""
        rng = np.random.default_rng(0)
        images = rng.random((self.batch, *IMAGE), dtype=np.float32)
        labels = rng.integers(0, CLASSES, self.batch)
        return models.build("capsnet", IMAGE, CLASSES, preset=self.preset), images, labels

    def step(self, model, images, labels):
        """Return our step function."""
        if self.train:
            return TrainingStep(model, images, labels)
        return inference(model, images)


class TrainingStep:
    """Trains `model` one step on the batch each time it is called; returns the loss before."""

    def __init__(self, model, images, labels):
        self.model, self.images, self.labels = model, images, labels
        self.optimizer = Adam(model.named_parameters())

    def __call__(self):
        self.model.zero_grad()
        routed = self.model(Tensor(self.images))
        drawn = self.model.reconstruct(routed.poses, self.labels)
        loss = ops.margin_loss(routed.activations, self.labels)
        loss = loss + ops.reconstruction_loss(drawn, self.images)
        loss.backward()
        self.optimizer.step()
        return loss.item()


def inference(model, images):
    """Return a function that returns the lengths (B, J) that `model` finds for the images."""
    model.eval()

    def step():
        with no_grad():
            return model(Tensor(images)).activations.numpy()

    return step
