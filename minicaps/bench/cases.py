"""Steps timed by `minicaps.bench`: training and inference of CapsNet, as in normal use.

A training step consists of the forward pass, the backward pass and an Adam update on one batch,
with the margin loss and the reconstruction loss. Inference is the forward pass up to the lengths of
the class capsules and does not include the decoder.
"""

from typing import NamedTuple

import numpy as np

from minicaps import Tensor, models, no_grad, ops
from minicaps.optim import Adam

IMAGE, CLASSES = (1, 28, 28), 10
KINDS = {"train": "training step", "infer": "inference"}


class Case(NamedTuple):
    """Benchmark case: a key of KINDS, a CapsNet preset, and the number of images per step."""

    kind: str
    preset: str
    batch: int

    @property
    def train(self):
        return self.kind == "train"

    def material(self):
        """Return the network, the random images, and the labels shared by all competitors."""
        rng = np.random.default_rng(0)
        images = rng.random((self.batch, *IMAGE), dtype=np.float32)
        labels = rng.integers(0, CLASSES, self.batch)
        return models.build("capsnet", IMAGE, CLASSES, preset=self.preset), images, labels

    def step(self, model, images, labels):
        """Return the step function of minicaps."""
        if self.train:
            return TrainingStep(model, images, labels)
        return inference(model, images)


class TrainingStep:
    """Callable that performs one training step and returns the loss computed before the update."""

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
    """Return a function that computes the lengths (B, J) of the class capsules for the images."""
    model.eval()

    def step():
        with no_grad():
            return model(Tensor(images)).activations.numpy()

    return step
