"""Models from what names them: the options of a training, or a checkpoint, which restores one."""

import inspect

import numpy as np

from minicaps import checkpoint, models


def build_model(options, data):
    """Make the model that `options` describe for the pictures and classes of `data`."""
    available = options | {"decoder": bool(options["reconstruction"])}
    wanted = inspect.signature(models.MODELS[options["model"]]).parameters
    chosen = {name: available[name] for name in wanted if available.get(name) is not None}
    shape, classes = data.train.shape, len(data.class_names)
    return models.build(options["model"], shape, classes, **chosen)


def load_model(path, device):
    """Build the model of a checkpoint, with its parameters, on `device`.

    Raises CheckpointError for a file that is no checkpoint of a model this minicaps can build.
    """
    return build_saved(path, *checkpoint.load(path, needs=["model"]), device)


def build_saved(path, arrays, meta, device):
    """The model of `load_model` from what `checkpoint.load` gave for `path`."""
    config, state = meta["model"], checkpoint.unpack(arrays, "model")
    try:
        model = models.build(
            config["name"], config["input_shape"], config["classes"], **config["options"]
        )
        model.astype(next(iter(state.values())).dtype).load_state_dict(state)
    except (KeyError, TypeError, ValueError, StopIteration) as error:
        raise checkpoint.CheckpointError(f"{path} holds no model to build: {error}") from error
    if not all(np.isfinite(array).all() for array in state.values()):
        raise checkpoint.CheckpointError(
            f"{path} has parameters that are infinite or NaN: it is damaged, as no training saves"
            " such; take another checkpoint of the run"
        )
    return model.to(device)
