"""Trained runs: the model, its options and its data, for the commands that use them."""

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
    """Trained network in evaluation mode, with its origin.

    path: checkpoint that it was loaded from. options: options that it was trained with.
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
        """Shape (C, H, W) of the training images."""
        return tuple(self.model.config["input_shape"])


def open_run(path: str | Path, device: Device) -> Run:
    """Open a run folder (its best epoch) or a single checkpoint of a run on `device`.

    Raises CheckpointError for a folder without `best.npz` or a file that is not a checkpoint.
    """
    path = checkpoint.best_of(path)
    arrays, meta = checkpoint.load(path, needs=("model", "options", "preprocessing"))
    model = build_saved(path, arrays, meta, device).eval()
    with checkpoint.fitting(path):
        if missing := {"data", "seed", "validation"} - {**meta["options"]}.keys():
            raise KeyError(*sorted(missing))
        options = Options.from_dict(meta["options"] | {"loss": model.loss})
        os.fspath(options.data.name)  # TypeError if it is not a path
        return Run(path, model, device, options)


def dataset(run: Run, folder=None, *, test_only=False) -> data.Dataset:
    """Load the data that a run was trained on, with the same split.

    folder: folder to search first, instead of the one given for training. test_only: whether only
    the test images are needed; a named data set is then loaded with a single training image.
    """
    chosen = run.options.data
    chosen = replace(chosen, data_dir=folder or chosen.data_dir)
    if test_only and chosen.name in data.NAMES and not chosen.compose:
        chosen = replace(chosen, limit=1)
    return chosen.load(run.options.run.seed)
