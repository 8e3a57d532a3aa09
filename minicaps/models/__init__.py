"""Network classes, and a function for building a network by name."""

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
    """Return the options of the network `name` with their defaults.

    If a default is None, the value is chosen by the layer that uses the option.
    """
    parameters = inspect.signature(MODELS[name]).parameters.values()
    own = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    hands_on = any(p.kind is p.VAR_KEYWORD for p in parameters)  # passed on to the routing
    return own | (MODELS[name].routing_options if hands_on else {})


def build(name: str, input_shape: tuple[int, ...], classes: int, **options: Any) -> Network:
    """Build a network by name.

    The network's `config` attribute contains all arguments needed to rebuild it. The classes are
    named "0", "1", … until training or a checkpoint supplies other names.

    Parameters
    ----------
    name : a key of `MODELS`
    input_shape : shape of an image, (C, H, W)
    classes : number of classes, at least 2
    **options : keyword arguments of the network's class

    Returns
    -------
    The network, with new weights.

    Raises
    ------
    ValueError
        If the name or an option is unknown, or if a value is out of range.
    """
    if name not in MODELS:
        raise ValueError(f"unknown model {name!r}: choose {', '.join(MODELS)}")
    if len(input_shape) != 3 or min(input_shape) < 1:
        raise ValueError(f"input_shape must be (channels, height, width), got {input_shape}")
    if classes < 2:
        raise ValueError(f"a classifier needs at least 2 classes, got {classes}")
    known = options_of(name)
    if unknown := sorted(options.keys() - known.keys()):
        raise ValueError(
            f"{name} has no option {', '.join(unknown)}: choose from {', '.join(known)}"
        )
    model = MODELS[name](tuple(input_shape), classes, **options)
    shape = list(input_shape)
    model.config = {"name": name, "input_shape": shape, "classes": classes, "options": options}
    model.class_names = tuple(map(str, range(classes)))
    model.preprocessing = Preprocessing(shape=tuple(input_shape))
    return model
