"""Tools for training, storing and evaluating networks, shared by all experiments."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from minicaps import data
from minicaps.backend import Device
from minicaps.cli.sharing import speaking_as
from minicaps.cli.signals import StopRequest
from minicaps.data.images import write_picture
from minicaps.errors import CheckpointError
from minicaps.experiments.settings import written_out
from minicaps.experiments.significance import listed
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
    """Train networks and store them in `folder`, with one run folder per network.

    Trained networks are reused, and interrupted training runs are resumed.

    quick: whether to run a small trial version of the experiment. decided: function of a part that
    returns its stored results from the seed that decides on learning rates, or {}.
    """

    folder: Path
    quick: bool
    device: Device
    data_dir: str | None
    stop: StopRequest
    decided: Callable[[str], dict] = lambda part: {}

    def of(self, experiment):
        """Return the lab that has the networks of another experiment."""
        return replace(self, folder=self.folder.with_name(experiment + "-quick" * self.quick))

    def save(self, figure, path):
        """Write a figure, and mark it if it belongs to a quick trial.

        A quick trial is marked because its figure may be shown out of context.
        """
        canvas.save(figure, path, QUICK if self.quick else "")

    def save_pixels(self, pixels, path):
        """Write an image (1 or 3, H, W) with values in [0, 1] to a file, one pixel per value."""
        with replacing(path) as file:
            write_picture(file, pixels)

    def data(self, name, seed, limit=None, **composed):
        """Load the data set `name`, or part of it. See `minicaps.data.load` for other arguments."""
        folder = None if name == "strokes" else self.data_dir
        if self.quick:
            limit = min(limit or QUICK_TRAINING, QUICK_TRAINING)
        whole = data.load(name, folder=folder, limit=limit, seed=seed, **composed)
        if not self.quick:
            return whole
        return replace(whole, test=whole.test.take(np.arange(QUICK_TEST)))

    def train(self, part, dataset, given, *, keep_epochs=False):
        """Train a network on `dataset` with the options in `given` and defaults for the rest.

        part: name of the network. keep_epochs: whether to keep a checkpoint `epoch-k.npz` of every
        epoch k from now on. Returns the run folder, which contains `summary.json`. Raises
        ExperimentError if the folder already contains a network that was trained with different
        options, and `minicaps.storage.InUse` if another process is training the network.
        """
        folder = self.folder / f"{part}-seed-{given['seed']}"
        options = complete(written_out(given) | {"device": self.device.kind, "out": str(folder)})
        results_folder(folder, "start where you may write: networks go to runs/experiments")
        if (folder / "summary.json").exists():  # finished, so it needs no lock
            if (folder / "last.npz").exists():
                saved = checkpoint.load(folder / "last.npz", ("options",))
                _check_options(folder, saved[1]["options"], options.to_dict())
            read_summary(folder)  # fails now if it is damaged
            return folder
        with checkpoint.resuming(folder) as saved:
            if (folder / "summary.json").exists():  # another process has just finished it
                return folder
            if saved:
                _check_options(folder, saved[1]["options"], options.to_dict())
            with speaking_as(folder.name):
                self._finish(folder, options, dataset, saved, keep_epochs)
        return folder

    def _finish(self, folder, options, dataset, saved, keep_epochs):
        """Train a network, from its last checkpoint `saved` if there is one."""
        print(f"\n{folder}" + (": resuming" if saved else ""))
        display = (KeepEpochs if keep_epochs else Display)(NAME, quiet=False)
        trainer = Trainer(options, dataset, self.device, folder, display, self.stop)
        if saved:
            try:
                trainer.load(*saved)
            except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
                raise ExperimentError(
                    f"cannot resume from {folder / 'last.npz'}: move {folder} away ({error!r})"
                ) from error
        summary = trainer.run()
        learned = {"images_learned": len(trainer.training) * trainer.epoch}
        write_json(folder / "summary.json", summary | learned)

    def model(self, path):
        """Load a network from a checkpoint, or from the best epoch in a run folder."""
        return open_run(path, self.device).model

    def outputs(self, model, function, split):
        """Return function(images) for the images of `split`, (n, ...), as a NumPy array."""
        return outputs(model, function, split, EVALUATION_BATCH, stop=self.stop)

    def activations(self, model, split):
        """Return the activations (n, J) of a model on `split`, as a NumPy array."""
        return self.outputs(model, lambda x: model(x).activations, split)

    def right(self, model, split):
        """Return a boolean array (n,) that marks the correctly classified images of `split`."""
        return self.activations(model, split).argmax(axis=1) == split.labels

    def accuracy(self, model, split):
        """Return the fraction of images in `split` that a model classifies correctly."""
        return float(self.right(model, split).mean())


class ExperimentError(CheckpointError):
    """Raised if existing results or networks do not belong to the experiment."""


def _check_options(folder, saved, wanted):
    """Raise ExperimentError if a network was trained with options other than `wanted`.

    Options that did not exist when the network was trained are not compared.
    """
    for name in (wanted.keys() & saved.keys()) - ELSEWHERE:
        if saved[name] != wanted[name]:
            raise ExperimentError(
                f"{folder} holds a network with {name} {saved[name]}, not {wanted[name]}: it"
                " comes from an earlier experiment; move the folder away"
            )


def read_summary(folder):
    """Read the summary that `Lab.train` saved in a run folder.

    Raises ExperimentError if the summary is damaged.
    """
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
    """Return the number of parameters of a network and how much it was trained.

    The number of images learned counts every repetition. Summaries of earlier versions lack it.
    """
    found = {"parameters": summary["parameters"], "seconds": summary["training_seconds"]}
    if "images_learned" in summary:
        found["learned"] = summary["images_learned"]
    return found


def tested(right):
    """Return the number of test images, and which of them are misclassified, for the results.

    right: booleans (n,), true for each correctly classified image, or a dictionary {kind: booleans
    (n,)} if n images of each of several kinds were tested.
    """
    if not isinstance(right, dict):
        return {"tested": len(right), "wrong": listed(~right)}
    wrong = {kind: listed(~one) for kind, one in right.items()}
    return {"tested": len(next(iter(right.values()))), "wrong": wrong}


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
