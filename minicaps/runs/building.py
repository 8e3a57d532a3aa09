"""Models from what names them: the options of a training, or a checkpoint, which restores one."""

from dataclasses import asdict

import numpy as np

from minicaps import models
from minicaps.backend import choose_device
from minicaps.errors import CheckpointError
from minicaps.runs import checkpoint


def build_model(options, data):
    """Make the model that `options` describe for the pictures and classes of `data`."""
    own = options.model
    available = asdict(own) | {"decoder": bool(own.reconstruction), "seed": options.run.seed}
    wanted = models.options_of(own.name)
    chosen = {name: available[name] for name in wanted if available.get(name) is not None}
    return models.build(own.name, data.train.shape, len(data.class_names), **chosen)


def tell_apart(saved, here):
    """In words, what two networks differ in, each given as the description in a checkpoint."""
    known = [_flat(meta["model"], meta["options"]) for meta in (saved, here)]
    if known[0]["model"] != known[1]["model"]:  # they have different options, too
        known = [{"model": flat["model"]} for flat in known]
    return "; ".join(
        f"{name} is {known[0].get(name, 'not set')} in the checkpoint, {value} in this run"
        for name, value in known[1].items()
        if known[0].get(name) != value
    )


def _flat(config, options):
    shape = "×".join(map(str, config["input_shape"]))
    named = {"model": config["name"], "input_shape": shape, "classes": config["classes"]}
    return named | {"precision": options.get("precision")} | config["options"]


def load_model(path, device="cpu"):
    """Build the model of a checkpoint, in evaluation mode, with its parameters.

    device: a `minicaps.backend.Device`, or the name of one. Raises CheckpointError for a file that
    is no checkpoint of a model this minicaps can build.
    """
    device = choose_device(device) if isinstance(device, str) else device
    return build_saved(path, *checkpoint.load(path, needs=["model"]), device).eval()


def build_saved(path, arrays, meta, device):
    """The model of `load_model` from what `checkpoint.load` gave for `path`."""
    config, state = meta["model"], checkpoint.unpack(arrays, "model")
    try:
        model = models.build(
            config["name"], config["input_shape"], config["classes"], **config["options"]
        )
        model.astype(next(iter(state.values())).dtype).load_state_dict(state)
    except (KeyError, TypeError, ValueError, StopIteration) as error:
        raise CheckpointError(f"{path} holds no model to build: {error}") from error
    if not all(np.isfinite(array).all() for array in state.values()):
        raise CheckpointError(
            f"{path} has parameters that are infinite or NaN: it is damaged, as no training saves"
            " such; take another checkpoint of the run"
        )
    return model.to(device)
