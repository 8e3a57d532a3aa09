"""Tools shared by the experiments: train networks, keep them, and evaluate them."""

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
ELSEWHERE = {"device", "data_dir", "out", "quiet"}  # options that do not affect training
QUICK = "Quick trial on little data for a few epochs: its results are not meaningful."
QUICK_TRAINING, QUICK_TEST = 2500, 500  # images


@dataclass(frozen=True, eq=False)
class Lab:
    """Train networks and keep them: `folder` holds one run folder per network.

    A trained network is reused, and an interrupted training run is resumed.
    quick: whether to run a small trial version of the experiment.
    """

    folder: Path
    quick: bool
    device: Device
    data_dir: str | None
    stop: StopRequest

    def save(self, figure, path):
        """Write a figure; mark that of a quick trial, because it may be shown out of context."""
        canvas.save(figure, path, QUICK if self.quick else "")

    def save_pixels(self, pixels, path):
        """Write an image (1 or 3, H, W) with values in [0, 1], one pixel per value."""
        with replacing(path) as file:
            write_picture(file, pixels)

    def data(self, name, seed, limit=None, **composed):
        """Load the data set `name`, or part of it. Other arguments: see `minicaps.data.load`."""
        folder = None if name == "strokes" else self.data_dir
        if self.quick:
            limit = min(limit or QUICK_TRAINING, QUICK_TRAINING)
        whole = data.load(name, folder=folder, limit=limit, seed=seed, **composed)
        if not self.quick:
            return whole
        return replace(whole, test=whole.test.take(np.arange(QUICK_TEST)))

    def train(self, part, dataset, given):
        """Train a network on `dataset` with the options `given` and defaults for all others.

        part: name of the network. Returns its run folder, which contains `summary.json` and, for
        every epoch k, `epoch-k.npz`. Raises ExperimentError if the folder holds a network that was
        trained with other options.
        """
        folder = self.folder / f"{part}-seed-{given['seed']}"
        options = complete({**given, "device": self.device.kind, "out": str(folder)})
        results_folder(folder, "start where you may write: networks go to runs/experiments")
        with checkpoint.resuming(folder) as saved:
            if saved:
                _check_options(folder, saved[1]["options"], options.to_dict())
            if (folder / "summary.json").exists():
                read_summary(folder)  # fails now if it is damaged
                return folder
            print(f"\n{folder}" + (": resuming" if saved else ""))
            display = KeepEpochs(NAME, quiet=False)
            trainer = Trainer(options, dataset, self.device, folder, display, self.stop)
            if saved:
                try:
                    trainer.load(*saved)
                except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
                    raise ExperimentError(
                        f"cannot resume from {folder / 'last.npz'}: move {folder} away ({error!r})"
                    ) from error
            write_json(folder / "summary.json", trainer.run())
        return folder

    def model(self, path):
        """Load the network of a run folder's best epoch, or that of a checkpoint."""
        return open_run(path, self.device).model

    def outputs(self, model, function, split):
        """Return function(images) for the images of `split`, (n, ...), as a NumPy array."""
        return outputs(model, function, split, EVALUATION_BATCH, stop=self.stop)

    def activations(self, model, split):
        """Return the activations (n, J) of a model on `split`, as a NumPy array."""
        return self.outputs(model, lambda x: model(x).activations, split)

    def right(self, model, split):
        """Tell which images of `split` a model classifies correctly: booleans (n,)."""
        return self.activations(model, split).argmax(axis=1) == split.labels

    def accuracy(self, model, split):
        """Return the fraction of the images of `split` that a model classifies correctly."""
        return float(self.right(model, split).mean())


class ExperimentError(CheckpointError):
    """Existing results or networks do not belong to this experiment."""


def _check_options(folder, saved, wanted):
    """Compare the options that already existed when the network was trained."""
    for name in (wanted.keys() & saved.keys()) - ELSEWHERE:
        if saved[name] != wanted[name]:
            raise ExperimentError(
                f"{folder} holds a network with {name} {saved[name]}, not {wanted[name]}: it"
                " comes from an earlier experiment; move the folder away"
            )


def read_summary(folder):
    """Read the summary that `Lab.train` wrote into a run folder. Raises ExperimentError if it is
    damaged."""
    path = folder / "summary.json"
    try:
        summary = json.loads(path.read_text())
        summary["training_seconds"]
    except (ValueError, KeyError, TypeError) as error:
        raise ExperimentError(
            f"{path} is damaged ({error!r}): remove it to have the network evaluated again"
        ) from error
    return summary


def cost(summary):
    """Return the cost of a network: its number of parameters and the seconds of training."""
    return {"parameters": summary["parameters"], "seconds": summary["training_seconds"]}


class KeepEpochs(Display):
    """Show progress as `minicaps.train` does, and keep the checkpoint of every epoch."""

    def start(self, trainer):
        super().start(trainer)
        if trainer.epoch and not trainer.batch:  # possibly killed before it was kept
            self._keep(trainer)

    def epoch(self, trainer, row):
        super().epoch(trainer, row)
        self._keep(trainer)

    def _keep(self, trainer):
        with replacing(trainer.folder / f"epoch-{trainer.epoch}.npz") as file:
            file.write((trainer.folder / "last.npz").read_bytes())
