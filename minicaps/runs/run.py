"""Load trained runs with their models, options and data."""

import json
import os
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from minicaps import data
from minicaps.backend import Device
from minicaps.models import Network
from minicaps.models.rivals import RIVAL
from minicaps.runs import checkpoint
from minicaps.runs.building import as_device, build_saved
from minicaps.runs.configuration import Options, options_of

# Options by which two runs differ if they learned other images or are other networks
OF_THE_RUN = ("data", "seed", "validation", "size", "compose", "model", "preset")


@dataclass(frozen=True, eq=False)
class Run:
    """Trained network in evaluation mode, with the checkpoint path and the training options.

    path: checkpoint that contains the network. options: options used for training.
    """

    path: Path
    model: Network
    device: Device
    options: Options

    @property
    def folder(self):
        return self.path.parent

    def place_of(self, results: str) -> Path:
        """Return the usual path of a command's results, which networks of other names do not share.

        That of the best epoch is in the run folder. That of another file, such as last.npz or
        digits.safetensors, is beside the file and begins with its name: digits-evaluation.
        """
        best = self.path.name == checkpoint.BEST
        return self.folder / (results if best else f"{self.path.stem}-{results}")

    def companion(self, name: str) -> Path:
        """Return the path of a file that training wrote beside the network.

        Where a network file lies in the folder of another run, whose options differ, that run's
        images, curves and results are not those of this network: the path then begins with the
        name of the network file, so that nothing is found there.
        """
        try:
            there = json.loads((self.folder / "config.json").read_text())["options"]
            own = self.options.to_dict()
            if any(there.get(key, own[key]) != own[key] for key in OF_THE_RUN):
                return self.folder / f"{self.path.stem}-{name}"
        except (OSError, ValueError, TypeError, LookupError, AttributeError):
            pass  # unfinished, older or damaged: nothing says that the file is another run's
        return self.folder / name

    @property
    def input_shape(self):
        """Shape (C, H, W) of the training images."""
        return tuple(self.model.config["input_shape"])

    @cached_property
    def rival(self):
        """Ratio to the highest activation above which a class is a rival, after the spread loss.

        Training learns it from validation images; otherwise, it is `RIVAL`.
        """
        try:
            rival = json.loads(self.companion("summary.json").read_text())["rival"]
            return float(rival) if 0 <= rival <= 1 else RIVAL
        except (OSError, ValueError, TypeError, LookupError):  # unfinished, older or damaged
            return RIVAL


def open_run(path: str | Path, device: Device | str) -> Run:
    """Load a run on `device` from a single checkpoint or from the best epoch of a run folder.

    Raises CheckpointError if a folder does not contain `best.npz` or a file is not a checkpoint.
    """
    device, path = as_device(device), checkpoint.best_of(path)
    needs = ("model", "options", "preprocessing")
    arrays, meta = checkpoint.load(path, needs, groups=["model"])
    model = build_saved(path, arrays, meta, device).eval()
    with checkpoint.fitting(path):
        if missing := {"data", "seed", "validation"} - {**meta["options"]}.keys():
            raise KeyError(*sorted(missing))
        options = Options.from_dict(options_of(meta) | {"loss": model.loss})
        os.fspath(options.data.name)  # TypeError if it is not a path
        return Run(path, model, device, options)


def dataset(run: Run, folder=None, *, test_only=False) -> data.Dataset:
    """Load the data that a run was trained on, using the same split.

    folder: folder to search first, instead of the one given for training. test_only: whether only
    the test images are needed; a named data set is then loaded with a single training image.
    """
    chosen = run.options.data
    chosen = replace(chosen, data_dir=folder or chosen.data_dir)
    if test_only and chosen.name in data.NAMES and not chosen.compose:
        chosen = replace(chosen, limit=1)
    return chosen.load(run.options.run.seed)
