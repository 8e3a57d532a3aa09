"""Runs that have been trained: the model, and what is known of it, for the commands that use it."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

from minicaps import data
from minicaps.backend import Device
from minicaps.models import Network
from minicaps.runs import checkpoint
from minicaps.runs.building import build_saved
from minicaps.runs.configuration import Options


@dataclass(frozen=True, eq=False)
class Run:
    """A trained network in evaluation mode, and where it comes from.

    path: its checkpoint. options: those it was trained with.
    """

    path: Path
    model: Network
    device: Device
    options: Options

    @property
    def folder(self):
        return self.path.parent

    @property
    def input_shape(self):
        """(C, H, W) of the pictures that it was trained on."""
        return tuple(self.model.config["input_shape"])


def open_run(path: str | Path, device: Device) -> Run:
    """Open a run folder (its best epoch), or one checkpoint of it, on `device`.

    Raises CheckpointError for a folder without `best.npz`, and for what is no checkpoint.
    """
    path = checkpoint.best_of(path)
    arrays, meta = checkpoint.load(path, needs=("model", "options", "preprocessing"))
    model = build_saved(path, arrays, meta, device).eval()
    with checkpoint.fitting(path):
        if missing := {"data", "seed", "validation"} - {**meta["options"]}.keys():
            raise KeyError(*sorted(missing))
        options = Options.from_dict(meta["options"] | {"loss": model.loss})
        os.fspath(options.data.name)  # TypeError for what is no path
        return Run(path, model, device, options)


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
