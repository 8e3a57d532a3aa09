"""Describe networks as JSON with their weights as text, for the twins in `static/capsnet.js`."""

import base64

import numpy as np

from minicaps.backend import to_host
from minicaps.errors import UserError
from minicaps.models import CapsNet, DenseCNN, Network
from minicaps.routing.routed import RoutingOptions

MOST_CLASSES = 20  # bars that fit beside a drawing
MOST_WEIGHTS = 20_000_000  # a page of 53 MB
LARGEST = float(np.finfo(np.float16).max)


class CannotExplore(UserError):
    """A network that the page cannot show."""


def rounded(model: Network) -> Network:
    """Round the weights of a model to float16 in place, and return it with float32 weights.

    Raises CannotExplore if a weight is too large for float16.
    """
    _check_range(model)
    return model.astype(np.float16).astype(np.float32)


def _check_range(model):
    largest = max(float(np.abs(array).max()) for array in model.state_dict().values())
    if largest > LARGEST:
        raise CannotExplore(
            f"the network has a weight of {largest:.3g}, but pages store float16, which ends at"
            f" {LARGEST:,.0f}: training probably diverged; use an earlier checkpoint"
        )


def describe(model: Network) -> dict:
    """Return the JSON-serializable description of a CapsNet, with weights rounded to float16.

    Raises CannotExplore for all other networks, and for a network that is too large.
    """
    if not isinstance(model, CapsNet):
        name = model.config["name"]
        raise CannotExplore(f"the page shows a capsnet, but this network is a {name}: give another")
    classes = len(model.class_names)
    if classes > MOST_CLASSES:
        raise CannotExplore(
            f"the page shows up to {MOST_CLASSES} classes, but this network has {classes}"
        )
    if model.number_of_parameters() > MOST_WEIGHTS:
        raise CannotExplore(
            f"the page holds up to {MOST_WEIGHTS:,} weights, but this network has"
            f" {model.number_of_parameters():,}: train one with --preset small or smaller images"
        )
    _check_range(model)
    votes, logits = model.classes.weight, model.classes.routing.logits
    options = model.config["options"]
    squash = options.get("primary_squash") or options.get("squash") or "paper"
    return _facts(model) | {
        "grid": model.children_grid._asdict(),  # type: ignore[union-attr]
        "convolutions": [_convolution(layer) for layer in model.convolutions],
        "primary": _convolution(model.primary.conv)
        | {"size": model.primary.size, "squash": squash},
        # stored as (I, N, J, D), so that all votes of a child are one sum of rows
        "votes": _weights(votes.data.transpose(0, 2, 1, 3), shape=votes.shape),
        "logits": None if logits is None else _weights(logits.data.T),
        "routing": _routing(model),
        "decoder": [_linear(layer) for layer in model.decoder.layers] if model.decoder else None,
    }


def describe_beside(model: Network, capsnet: Network) -> dict:
    """Return the description of a dense-cnn that is compared with a CapsNet.

    Raises CannotExplore if it is another network, or one for other images or classes.
    """
    if not isinstance(model, DenseCNN):
        name = model.config["name"]
        raise CannotExplore(f"the network beside the capsnet must be a dense-cnn, not a {name}")
    for what, ours, theirs in (
        ("images", capsnet.config["input_shape"], model.config["input_shape"]),
        ("classes", capsnet.class_names, model.class_names),
    ):
        if ours != theirs:
            raise CannotExplore(f"the two networks have different {what}: {ours} and {theirs}")
    _check_range(model)
    return _facts(model) | {
        "sigmoids": model.sigmoids,
        "convolutions": [_convolution(layer) for layer in model.convolutions],
        "hidden": _linear(model.hidden),
        "output": _linear(model.classes),
    }


def halves(array: np.ndarray) -> str:
    """Return numbers as float16 in base 64, in C order, the low byte first."""
    return base64.b64encode(np.ascontiguousarray(array, "<f2").tobytes()).decode("ascii")


def _facts(model):
    expected = model.expected_images()
    return {
        "model": model.config["name"],
        "shape": list(model.config["input_shape"]),
        "classes": list(model.class_names),
        "multi": model.multi,
        "loss": model.loss or "margin",
        "background": expected.background,
        "centred": expected.centred,
        "parameters": model.number_of_parameters(),
    }


def _routing(model):
    """Return the options of the routing with their defaults, under the names of JavaScript."""
    given = {**model.classes.routing.route.keywords}
    options = {key: given.get(key, value) for key, value in vars(RoutingOptions()).items()}
    name = model.config["options"].get("routing") or "agreement"
    return {
        "routing": name,
        "update": options["update"] if name in ("agreement", "leaky") else None,
        "iterations": options["iterations"],
        "inverseTemperature": options["inverse_temperature"],
        "squash": options["squash"],
    }


def _convolution(layer):
    return {
        "weight": _weights(layer.weight.data.transpose(1, 2, 3, 0)),  # (C, K, K, O)
        "bias": _weights(layer.bias.data),
        "stride": layer.stride,
    }


def _linear(layer):
    return {"weight": _weights(layer.weight.data), "bias": _weights(layer.bias.data)}


def _weights(array, shape=None):
    array = to_host(array)
    return {"shape": list(shape or array.shape), "halves": halves(array)}
