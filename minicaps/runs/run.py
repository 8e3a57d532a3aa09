"""Runs that have been trained: the model, and what is known of it, for the commands that use it."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

from minicaps import data
from minicaps.backend import Device
from minicaps.errors import CheckpointError
from minicaps.models.losses import LOSSES, usual_loss
from minicaps.nn import Module
from minicaps.runs import checkpoint
from minicaps.runs.building import build_saved
from minicaps.runs.configuration import Options


@dataclass(frozen=True, eq=False)
class Run:
    """A trained model, ready to answer, and where it comes from.

    path: its checkpoint. options: those it was trained with. class_names: one for each class.
    background: that of the training pictures, "dark", "light" or "mixed"; None in older files.
    multi: whether a picture may have any number of classes.
    """

    path: Path
    model: Module
    device: Device
    options: Options
    class_names: tuple[str, ...]
    background: str | None = None
    multi: bool = False

    @property
    def folder(self):
        return self.path.parent

    @property
    def input_shape(self):
        """(C, H, W) of the pictures that it was trained on."""
        return tuple(self.model.config["input_shape"])

    @property
    def score(self):
        """What its activations are called: a logit is no length, nor the probability made of it."""
        return "logit" if self.model.logits else self.model.score


def best_of(path) -> Path:
    """The checkpoint of a run folder's best epoch; a path that is no folder is the checkpoint.

    Raises CheckpointError for a folder without `best.npz`.
    """
    path = Path(path)
    if path.is_dir():
        path /= "best.npz"
        if not path.exists():
            inside = sorted(run.parent for run in path.parent.glob("*/best.npz"))
            why = "no run, or its first epoch did not end"
            if inside:
                why = f"it holds runs; name one of them, such as {inside[0]}"
            raise CheckpointError(f"{path.parent} has no best.npz: {why}")
    return path


def open_run(path, device) -> Run:
    """Open a run folder (its best epoch), or one checkpoint of it, on `device`.

    Raises CheckpointError for a folder without `best.npz`, and for what is no checkpoint.
    """
    path = best_of(path)
    arrays, meta = checkpoint.load(path, needs=("model", "options", "preprocessing"))
    model = build_saved(path, arrays, meta, device).eval()
    with checkpoint.fitting(path):
        pictures, options = meta["preprocessing"], _complete(meta["options"], model)
        names = tuple(map(str, pictures["class_names"]))
        if len(names) != meta["model"]["classes"]:
            raise ValueError(f"{len(names)} names for {meta['model']['classes']} classes")
        background, multi = pictures.get("background"), bool(pictures.get("multi"))
        return Run(path, model, device, options, names, background, multi)


def _complete(saved, model):
    """The options of a run with those that older ones do not have. Raises for what is no such."""
    if missing := {"data", "seed", "validation"} - {**saved}.keys():
        raise KeyError(*sorted(missing))
    loss = saved.get("loss") or usual_loss(model.config["name"])
    options = Options.from_dict(saved | {"loss": loss})
    if loss not in LOSSES:
        raise ValueError(f"unknown loss {loss!r}")
    os.fspath(options.data.name)  # TypeError for what is no path
    return options


def dataset(run: Run, folder=None, *, test_only=False) -> data.Dataset:
    """The data that a run was trained on, split as it was then.

    folder: searched first, in the place of the one that training searched. test_only: the training
    pictures are not needed; of a named data set there is one then.
    """
    chosen = run.options.data
    chosen = replace(chosen, data_dir=folder or chosen.data_dir)
    if test_only and chosen.name in data.NAMES and not chosen.compose:
        chosen = replace(chosen, limit=1)
    return chosen.load(run.options.run.seed)
