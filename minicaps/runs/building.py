"""Build models from training options, or restore them from checkpoints."""

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from minicaps import models
from minicaps.backend import Device, choose_device
from minicaps.errors import CheckpointError
from minicaps.models import Network
from minicaps.models.losses import LOSSES, usual_loss
from minicaps.runs import checkpoint

CENTRED = ("mnist", "strokes")  # data sets whose ink is centered


def build_model(options, data):
    """Build the model described by `options` for the images and classes of `data`."""
    own = options.model
    # None: not asked for, so that the network's config is that of older runs
    decoder = None if own.reconstruction is None else own.reconstruction > 0
    available = asdict(own) | {"decoder": decoder, "seed": options.run.seed}
    wanted = models.options_of(own.name)
    chosen = {name: available[name] for name in wanted if available.get(name) is not None}
    model = models.build(own.name, data.train.shape, len(data.class_names), **chosen)
    model.class_names, model.multi = tuple(data.class_names), data.multi
    model.loss = options.optimization.loss
    return model


def tell_apart(saved, here):
    """Describe the differences between two networks based on the metadata of their checkpoints."""
    known = [_flat(meta["model"], meta["options"]) for meta in (saved, here)]
    if known[0]["model"] != known[1]["model"]:  # their options differ, too
        known = [{"model": flat["model"]} for flat in known]
    return "; ".join(
        f"{name} is {known[0].get(name, 'not set')} in the checkpoint, but {value} in this run"
        for name, value in known[1].items()
        if known[0].get(name) != value
    )


def _flat(config, options):
    shape = "×".join(map(str, config["input_shape"]))
    named = {"model": config["name"], "input_shape": shape, "classes": config["classes"]}
    return named | {"precision": options.get("precision")} | config["options"]


def load_model(path: str | Path, device: Device | str = "cpu") -> Network:
    """Load a network in evaluation mode from a checkpoint file or the best epoch of a run folder.

    path: a run folder, a checkpoint (.npz), or a file that `minicaps.export` wrote (.safetensors).
    device: a `minicaps.backend.Device` or the name of one. The class names, loss and preprocessing
    are restored from training for use by `predict`. Raises CheckpointError if `path` holds no
    checkpoint that this version of minicaps can read.
    """
    device, path = as_device(device), checkpoint.best_of(path)
    arrays, meta = checkpoint.load(path, needs=["model"], groups=["model"])
    return build_saved(path, arrays, meta, device).eval()


def as_device(device) -> Device:
    """Return a `Device`, given it or its name."""
    return device if isinstance(device, Device) else choose_device(device)


def build_saved(path, arrays, meta, device) -> Network:
    """Build the model for `load_model` from the arrays and metadata of a loaded checkpoint."""
    config, state = meta["model"], checkpoint.unpack(arrays, "model")
    try:
        model = models.build(
            config["name"], config["input_shape"], config["classes"], **config["options"]
        )
        model.astype(next(iter(state.values())).dtype).load_state_dict(state)
    except (KeyError, TypeError, ValueError, StopIteration) as error:
        raise CheckpointError(f"{path} contains no model that can be built: {error}") from error
    if not all(np.isfinite(array).all() for array in state.values()):
        raise CheckpointError(
            f"{path} has parameters that are infinite or NaN: it is damaged, because training"
            " saves finite parameters only; use another checkpoint of the run"
        )
    with checkpoint.fitting(path):
        _describe(model, meta.get("preprocessing"), meta.get("options", {}))
    return model.to(device)


def _describe(model, images, options):
    """Set the loss, class names and preprocessing of a model from its checkpoint."""
    model.loss = options.get("loss") or usual_loss(model.config["name"])
    if model.loss not in LOSSES:
        raise ValueError(f"unknown loss {model.loss!r}")
    if images is None:  # not saved during training
        return
    names = tuple(map(str, images["class_names"]))
    if len(names) != model.config["classes"]:
        raise ValueError(f"{len(names)} names for {model.config['classes']} classes")
    model.class_names, model.multi = names, bool(images.get("multi"))
    model.preprocessing = replace(
        model.preprocessing,
        background=images.get("background"),  # older checkpoints have none of these
        inverted=images.get("inverted"),
        fill=images.get("fill", 0.0),
        scale=tuple(images["scale"]) if images.get("scale") else None,
        centred=options.get("data") in CENTRED and not model.multi,
    )
