"""The networks, by name and preset."""

import inspect
from typing import Any

from minicaps.data.preprocessing import Preprocessing
from minicaps.models.base import Network, Prediction
from minicaps.models.capsnet import CAPSNET_PRESETS, CapsNet
from minicaps.models.cnn import BaselineCNN, CapsuleCNN, PoolingCNN
from minicaps.models.dense import DenseCNN
from minicaps.models.matrix_capsnet import MATRIX_PRESETS, MatrixCapsNet

__all__ = [
    "CAPSNET_PRESETS",
    "MATRIX_PRESETS",
    "MODELS",
    "BaselineCNN",
    "CapsNet",
    "CapsuleCNN",
    "DenseCNN",
    "MatrixCapsNet",
    "Network",
    "PoolingCNN",
    "Prediction",
    "build",
    "options_of",
]

MODELS: dict[str, Any] = {
    "capsnet": CapsNet,
    "capsule-cnn": CapsuleCNN,
    "pooling-cnn": PoolingCNN,
    "baseline-cnn": BaselineCNN,
    "dense-cnn": DenseCNN,
    "matrix-capsnet": MatrixCapsNet,
}


def options_of(name: str) -> dict[str, Any]:
    """The options of the network `name`, with their defaults; None is that of a layer inside."""
    parameters = inspect.signature(MODELS[name]).parameters.values()
    own = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    hands_on = any(p.kind is p.VAR_KEYWORD for p in parameters)  # to a routing inside
    return own | (MODELS[name].routing_options if hands_on else {})


def build(name: str, input_shape: tuple[int, ...], classes: int, **options: Any) -> Network:
    """Make the network `name` for images of `input_shape` (C, H, W) and a number of classes.

    The names are the keys of `MODELS`, the options those of the network's class; `config` of the
    result has all that is needed to build it again. Classes are called "0", "1", … until training
    or a checkpoint names them. Raises ValueError for what does not exist or does not fit.
    """
    if name not in MODELS:
        raise ValueError(f"unknown model {name!r}: choose {', '.join(MODELS)}")
    if len(input_shape) != 3 or min(input_shape) < 1:
        raise ValueError(f"input_shape must be (channels, height, width), not {input_shape}")
    if classes < 2:
        raise ValueError(f"a classifier needs at least 2 classes, not {classes}")
    known = options_of(name)
    if unknown := sorted(options.keys() - known.keys()):
        raise ValueError(f"{', '.join(unknown)}: no option of {name}, which has {', '.join(known)}")
    model = MODELS[name](tuple(input_shape), classes, **options)
    shape = list(input_shape)
    model.config = {"name": name, "input_shape": shape, "classes": classes, "options": options}
    model.class_names = tuple(map(str, range(classes)))
    model.preprocessing = Preprocessing(shape=tuple(input_shape))
    return model
