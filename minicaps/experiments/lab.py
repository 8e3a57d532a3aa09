"""What all experiments do alike: train networks that are kept, and ask them."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from minicaps import data
from minicaps.backend import Device
from minicaps.cli.signals import StopRequest
from minicaps.data.images import write_picture
from minicaps.errors import CheckpointError
from minicaps.models.base import EVALUATION_BATCH
from minicaps.plotting import canvas
from minicaps.runs import checkpoint
from minicaps.runs.inference import outputs
from minicaps.runs.run import open_run
from minicaps.storage import replacing, results_folder, write_json
from minicaps.train.options import complete
from minicaps.train.progress import Display
from minicaps.train.trainer import Trainer

NAME = "minicaps.experiments"
ELSEWHERE = {"device", "data_dir", "out", "quiet"}  # options that do not change what is learned
QUICK = "Quick: small data and few epochs, to try it out. These figures say nothing yet."
QUICK_TRAINING, QUICK_TEST = 2500, 500  # pictures


@dataclass(frozen=True, eq=False)
class Lab:
    """Where networks are trained and kept: `folder` holds a run folder for each.

    A network that is there is not trained again, and a training that was stopped goes on.
    quick: whether the experiment shall be a small one, to try it out.
    """

    folder: Path
    quick: bool
    device: Device
    data_dir: str | None
    stop: StopRequest

    def save(self, figure, path):
        """Write a picture; a quick one says so, as it may be shown without the words beside it."""
        canvas.save(figure, path, QUICK if self.quick else "")

    def save_pixels(self, pixels, path):
        """Write what networks draw (1 or 3, H, W), in [0, 1], pixel by pixel."""
        with replacing(path) as file:
            write_picture(file, pixels)

    def data(self, name, seed, limit=None, **composed):
        """The data set `name`, or a small part of it. Other arguments: see `minicaps.data.load`."""
        folder = None if name == "strokes" else self.data_dir
        if self.quick:
            limit = min(limit or QUICK_TRAINING, QUICK_TRAINING)
        whole = data.load(name, folder=folder, limit=limit, seed=seed, **composed)
        if not self.quick:
            return whole
        return replace(whole, test=whole.test.take(np.arange(QUICK_TEST)))

    def train(self, part, dataset, given):
        """Train a network on `dataset` as the options `given` say, all others at their defaults.

        part: what it is called. Returns its run folder, which has `summary.json` and, for every
        epoch k, `epoch-k.npz`. Raises ExperimentError if the folder holds a network that learned
        otherwise.
        """
        folder = self.folder / f"{part}-seed-{given['seed']}"
        options = complete({**given, "device": self.device.kind, "out": str(folder)})
        results_folder(folder, "start where you may write: networks go to runs/experiments")
        with checkpoint.resuming(folder) as saved:
            if saved:
                _check_options(folder, saved[1]["options"], options.to_dict())
            if (folder / "summary.json").exists():
                read_summary(folder)  # refuses a damaged one now
                return folder
            print(f"\n{folder}" + (": goes on" if saved else ""))
            display = KeepEpochs(NAME, quiet=False)
            trainer = Trainer(options, dataset, self.device, folder, display, self.stop)
            if saved:
                try:
                    trainer.load(*saved)
                except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
                    raise ExperimentError(
                        f"{folder / 'last.npz'} is no training to go on with: move {folder} away"
                        f" ({error!r})"
                    ) from error
            write_json(folder / "summary.json", trainer.run())
        return folder

    def model(self, path):
        """The network of a run folder's best epoch, or of one of its checkpoints."""
        return open_run(path, self.device).model

    def outputs(self, model, function, split):
        """What function(images) gives for the pictures of `split`, (n, ...), as NumPy's."""
        return outputs(model, function, split, EVALUATION_BATCH, stop=self.stop)

    def activations(self, model, split):
        """The activations (n, J) of a model for the pictures of `split`, as NumPy's."""
        return self.outputs(model, lambda x: model(x).activations, split)

    def right(self, model, split):
        """Which pictures of `split` a model recognises: booleans (n,)."""
        return self.activations(model, split).argmax(axis=1) == split.labels

    def accuracy(self, model, split):
        """The share of the pictures of `split` that a model recognises."""
        return float(self.right(model, split).mean())


class ExperimentError(CheckpointError):
    """Figures or networks that are there, but not those of this experiment."""


def _check_options(folder, saved, wanted):
    """Compare the options that minicaps had when the network was trained."""
    for name in (wanted.keys() & saved.keys()) - ELSEWHERE:
        if saved[name] != wanted[name]:
            raise ExperimentError(
                f"{folder} holds a network with {name} {saved[name]}, not {wanted[name]}: it is"
                " from an earlier experiment; move the folder away"
            )


def read_summary(folder):
    """What `Lab.train` knows of the network in a run folder. Raises ExperimentError if it is
    damaged."""
    path = folder / "summary.json"
    try:
        summary = json.loads(path.read_text())
        summary["training_seconds"]
    except (ValueError, KeyError, TypeError) as error:
        raise ExperimentError(
            f"{path} is damaged ({error!r}): remove it, and the network is measured again"
        ) from error
    return summary


def cost(summary):
    """What a network costs, as figures: its parameters, seconds of training."""
    return {"parameters": summary["parameters"], "seconds": summary["training_seconds"]}


class KeepEpochs(Display):
    """Shows the training as `minicaps.train` does, and keeps the checkpoint of every epoch."""

    def start(self, trainer):
        super().start(trainer)
        if trainer.epoch and not trainer.batch:  # killed before it was kept, perhaps
            self._keep(trainer)

    def epoch(self, trainer, row):
        super().epoch(trainer, row)
        self._keep(trainer)

    def _keep(self, trainer):
        with replacing(trainer.folder / f"epoch-{trainer.epoch}.npz") as file:
            file.write((trainer.folder / "last.npz").read_bytes())
