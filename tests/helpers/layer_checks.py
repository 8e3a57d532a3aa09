"""Helpers shared by the tests of modules, layers and networks."""

import numpy as np

from minicaps import Tensor, models
from minicaps.gradcheck import check_gradients


def rng(seed=0):
    return np.random.default_rng(seed)


def check_layer(layer, *inputs):
    """Check the gradients of a layer's outputs with respect to all its parameters and inputs."""
    places = []
    for name, p in layer.named_parameters():
        *path, last = name.split(".")
        owner = layer
        for part in path:
            owner = owner[int(part)] if part.isdigit() else getattr(owner, part)
        places.append((owner, last, p.data))

    def function(*tensors):
        for (owner, last, _), tensor in zip(places, tensors, strict=False):
            setattr(owner, last, tensor)
        out = layer(*tensors[len(places) :])
        return out if isinstance(out, Tensor) else [x for x in out[:2] if x is not None]

    check_gradients(function, *(data for _, _, data in places), *inputs)


def pictures(batch, shape=(1, 28, 28), seed=0):
    """Draw bright blobs on black, with about as many dark and bright pixels as digits have."""
    x = rng(seed).normal(size=(batch, *shape))
    for _ in range(4):
        x = (x + np.roll(x, 1, axis=-1) + np.roll(x, 1, axis=-2)) / 3
    return (x > np.quantile(x, 0.8)).astype(np.float32)


def a_small_capsnet(**options):
    return models.build("capsnet", (1, 17, 17), 3, preset="small", **options)
