"""One complete training step of a small network, on any device."""

import numpy as np

from minicaps import Tensor, models, ops
from minicaps.backend import choose_device
from minicaps.optim import clip_gradient_norm

CLASSES, BATCH = 5, 8


def make_model(dtype=np.float32, device="cpu", **options):
    model = models.build("capsnet", (1, 20, 20), CLASSES, preset="small", **options)
    return model.astype(dtype).to(choose_device(device))


def make_batch(dtype=np.float32, device="cpu"):
    rng = np.random.default_rng(1)
    images = rng.random((BATCH, 1, 20, 20)).astype(dtype)
    labels = rng.integers(0, CLASSES, BATCH)
    device = choose_device(device)
    return device.put(images), device.put(labels)


def step(model, optimizer, images, labels, clip=0.1):
    """Perform one training step; return the loss and the norm of the gradient."""
    routed = model(Tensor(images))
    drawn = model.reconstruct(routed.poses, labels)
    loss = ops.margin_loss(routed.activations, labels) + ops.reconstruction_loss(drawn, images)
    model.zero_grad()
    loss.backward()
    norm = clip_gradient_norm(model.parameters(), clip)
    optimizer.step()
    return loss.data, norm
