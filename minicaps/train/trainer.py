"""Train a model on data, and write checkpoints and metrics to a run folder.

A run can be stopped after any step and resumed later. On a CPU with the same number of cores, the
result is bit-identical, because the randomness of a step depends only on (seed, epoch, batch) and
everything else is in the checkpoint.
"""

import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from minicaps import ranks
from minicaps.backend import to_host
from minicaps.data import NAMES
from minicaps.data.batches import batches, number_of_batches, resident
from minicaps.data.dataset import count_classes, mean_recall
from minicaps.data.images import background
from minicaps.data.ink import drawn
from minicaps.errors import DataError, Interrupted, NothingLearned
from minicaps.models.losses import check_several
from minicaps.runs import checkpoint
from minicaps.runs.building import build_model
from minicaps.runs.inference import evaluate
from minicaps.storage import write_csv
from minicaps.train import ancestry, diagnosis, summary
from minicaps.train.step import Learner

ENOUGH = 2  # validation images of each class, for its recall to choose an epoch


class Trainer:
    """Trainer for one model and one data set.

    options: `minicaps.runs.configuration.Options`. data: a `Dataset`. folder: existing folder
    for the results. display: notified of every step and epoch (see `minicaps.train.progress`).
    stop: true once the user asks to stop. warnings: {kind: sentence} for each problem reported so
    far; a problem is reported only once.
    """

    def __init__(self, options, data, device, folder, display, stop):
        self.options, self.data, self.device = options, data, device
        self.folder, self.display, self.stop = Path(folder), display, stop
        self.optimization = own = options.optimization
        self.training, self.validation = options.data.split(data, options.run.seed)
        if own.patience and not self.validation:
            raise ValueError("--patience needs validation images: give a --validation above 0")
        self._check_same_images()
        self.model = build_model(options, data).astype(np.dtype(options.run.precision)).to(device)
        if data.multi:
            check_several(own.loss, self.model)
            if options.data.balance:
                raise ValueError(
                    "--balance requires exactly one class per image, but the data is multi-label:"
                    " leave it out"
                )
        self.model.preprocessing = replace(
            self.model.preprocessing,
            background=self._background(),
            inverted=None if options.data.invert is None else data.inverted,
            fill=options.data.fill,
            scale=self.training.scale,
        )
        self.training = resident(self.training, device)
        self.validation = self.validation and resident(self.validation, device)
        self.batches = number_of_batches(len(self.training), own.batch_size)
        self.learner = Learner(self.model, options, device, self.batches)
        self.epoch = self.batch = 0
        self.rest_of_epoch()  # rejects an unsuitable augmentation now, not during training
        self.history, self.best, self.seconds, self.warnings = [], None, 0.0, {}
        self.note = self.seen_before = None  # about the run from which this one starts

    def _check_same_images(self):
        """Raise DataError if the ranks were given different images, which would be mixed."""
        if ranks.count() > 1:
            found = ranks.gather(summary.checksums(self))
            if any(one != found[0] for one in found):
                raise DataError(
                    "the ranks have different images or labels: give the same data to all of them;"
                    " if a program shuffles it, with the same seed"
                )

    def _background(self):
        """Return the background of the training images; "mixed" for custom photographs."""
        pixels, own = self.training.pixels, self.options.data
        known = own.name in NAMES or own.invert is None  # a run of an older version
        return background(pixels) if known or drawn(pixels) else "mixed"

    def run(self):
        """Train to the last epoch and return `minicaps.train.summary.results`."""
        self.display.start(self)
        if self.note:
            self.display.note(self.note)
        self._tell("seen before", self.seen_before)
        custom = self.options.data.name not in NAMES
        few = diagnosis.few_steps(self.optimization, len(self.training), custom=custom)
        if self.options.run.start_from is None:  # otherwise, it is already trained
            self._tell("few steps", few, self.display.note)
        vanishing = diagnosis.vanishing_step(self.optimization)
        self._tell("vanishing step", vanishing, self.display.note)
        self._tell("pixels", diagnosis.pixels(self.training.pixels))
        if self.data.multi:
            names = self.data.class_names
            present = count_classes(self.training.labels, len(names))
            always = diagnosis.always_present(present, len(self.training), names)
            self._tell("always present", always)
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # check_finite tells more than NumPy
                while self.epoch < self.optimization.epochs and not self._lost_patience():
                    self.train_epoch()
                    self._finish_epoch()
                return summary.results(self)
        except Interrupted:
            self.save("last.npz")
            raise
        finally:
            self.display.close()

    def _tell(self, kind, sentence, how=None):
        """Report a problem unless `sentence` is None or this kind has already been reported."""
        if sentence and kind not in self.warnings:
            self.warnings[kind] = sentence
            (how or self.display.warn)(sentence)

    def _lost_patience(self):
        """Return whether the validation results have failed to improve for `patience` epochs."""
        patience = self.optimization.patience
        return bool(patience and self.best) and self.epoch - self.best["epoch"] >= patience

    def rest_of_epoch(self):
        """Return an iterator over the remaining batches of this epoch."""
        options = self.options
        return batches(
            self.training,
            self.optimization.batch_size,
            seed=options.run.seed,
            epoch=self.epoch,
            start=self.batch,
            fill=options.data.fill,
            parts=bool(options.data.compose and options.model.reconstruction),
            balance=bool(options.data.balance),
            shared=True,
            **options.data.augmentation,
        )

    def train_epoch(self):
        """Perform all remaining training steps of the current epoch."""
        started, before = time.perf_counter(), self.seconds
        for batch in self.rest_of_epoch():
            if self._is_stopped():
                raise Interrupted
            self._step(*batch)
            self.batch += 1
            self.seconds = before + time.perf_counter() - started
            self.display.step(self, len(batch[1]))
        self.device.synchronize()  # a GPU lags behind, and its time counts
        self.seconds = before + time.perf_counter() - started

    def _is_stopped(self):
        """Return whether the user asks to stop; several ranks agree on it in each step."""
        return self.learner.stopped if ranks.count() > 1 else self.stop

    def _step(self, *batch):
        self.learner.step(self.epoch, self.batch, *batch, stop=self.stop)

    @property
    def splits(self):
        """Training, validation and test sets by name, with None for a missing validation set."""
        return {"train": self.training, "validation": self.validation, "test": self.data.test}

    def seen(self):
        """Return the number of training samples seen in this epoch so far."""
        return min(self.batch * self.optimization.batch_size, len(self.training))

    def _finish_epoch(self):
        self.learner.check_finite()
        loss, reconstruction, right = self.learner.sums()
        row = {
            "epoch": self.epoch + 1,
            "train_loss": loss / len(self.training),
            "train_accuracy": right / len(self.training),
        }
        if self.options.model.reconstruction:
            row["reconstruction_loss"] = reconstruction / len(self.training)
        answers = None
        if self.validation:
            loss, right, counts = self.evaluate(self.model, self.validation, progress="validation")
            answers = counts[0]
            if not np.isfinite(loss):
                self.learner.diverged("validation loss")
            row |= {
                "validation_loss": loss,
                "validation_accuracy": right / len(self.validation),
            }
            present = count_classes(to_host(self.validation.labels), counts.shape[1])
            if self.options.data.balance and present.min() >= ENOUGH:
                row["validation_balanced_accuracy"] = mean_recall(counts[1], present)
        seconds = self.seconds - sum(row["seconds"] for row in self.history)
        row |= {
            "learning_rate": self.learner.learning_rate(self.epoch, self.batches - 1),
            "seconds": seconds,
            "images_per_second": len(self.training) / seconds,
        }
        self.history.append(row)
        self.epoch, self.batch = self.epoch + 1, 0
        self._diagnose(row, answers)
        self.learner.start_epoch()
        accuracy = row.get("validation_balanced_accuracy", row.get("validation_accuracy", 0))
        quality = [accuracy, -row.get("validation_loss", 0)]
        if self.best is None or not self.validation or quality > self.best["quality"]:
            self.best = {"epoch": self.epoch, "quality": quality}
            self.save("best.npz")
        self.save("last.npz")
        rows = [list(row.values()) for row in self.history]
        ranks.by_root(write_csv, self.folder / "metrics.csv", list(row), rows)
        self.display.epoch(self, row)

    def _diagnose(self, row, answers):
        """Report problems after an epoch.

        answers (J,): number of validation images predicted as each class, or None.
        """
        part = "train" if answers is None else "validation"
        labels = to_host((self.validation or self.training).labels)
        present = count_classes(labels, self.model.config["classes"])
        idle = None
        if self.optimization.loss == "margin":
            loss, accuracy = row[f"{part}_loss"], row[f"{part}_accuracy"]
            weight = self.optimization.absent_weight
            idle = diagnosis.stuck(loss, accuracy, present / len(labels), weight)
        if answers is not None and not self.data.multi:
            idle = idle or diagnosis.constant(answers, present, row["train_accuracy"])
        if diagnosis.had_time(self.learner.optimizer.steps, self.epoch, self.optimization.epochs):
            if idle and self.optimization.restarts:
                raise NothingLearned(f"after epoch {self.epoch}, {idle}")
            self._tell("stuck", idle)
        self._tell("gradient", diagnosis.exploding(float(self.learner.gradient_norm)))
        if answers is not None and 2 * self.epoch > self.optimization.epochs:
            names = self.data.class_names
            never = diagnosis.never_predicted(answers, present, len(labels), names)
            self._tell("never predicted", never)

    def evaluate(self, model, split, *, progress):
        """Return the mean loss, the number of correct predictions, and counts for each class.

        The counts (2, J) are the numbers of predictions and of correct predictions. progress: name
        of a progress bar on a terminal.
        """
        counts = self.device.xp.zeros((2, model.config["classes"]), np.int64)
        progress = None if self.options.run.quiet else progress
        own = {"stop": self.stop, "counts": counts, "progress": progress}
        return *evaluate(model, split, self.optimization.loss, **own), to_host(counts)

    def save(self, name):
        """Write a checkpoint with everything needed to resume the run."""
        self.learner.check_finite()
        progress = {
            "epoch": self.epoch,
            "batch": self.batch,
            "sums": self.learner.sums(),
            "history": self.history,
            "best": self.best,
            "seconds": self.seconds,
            "warnings": self.warnings,
        }
        meta = {
            "model": self.model.config,
            "preprocessing": {
                "pixels": "[0, 1]",
                "class_names": list(self.data.class_names),
                "background": self.model.preprocessing.background,
                "inverted": self.model.preprocessing.inverted,
                "fill": self.model.preprocessing.fill,
                "scale": self.model.preprocessing.scale,
                "multi": self.data.multi,
            },
            "options": self.options.to_dict(),
            "progress": progress,
        }
        state = self.learner.optimizer.state_dict()
        steps = {"steps": np.asarray(state.pop("steps"))}
        arrays = checkpoint.pack(model=self.model.state_dict(), optimizer=state | steps)
        if not all(np.isfinite(array).all() for array in arrays.values()):
            self.learner.diverged("model")  # after a step with a finite loss
        ranks.by_root(checkpoint.save, self.folder / name, arrays, meta)

    def start_from(self, path):
        """Load the parameters of a checkpoint; raise ValueError if they do not match the model."""
        self.note = ancestry.take_over(self.model, self.options, path)
        self.seen_before = ancestry.seen_before(self.splits, self.options.data.name, path)

    def load(self, arrays, meta):
        """Resume from a checkpoint of this run; raise ValueError if it does not match the data."""
        for key in ("input_shape", "classes"):
            if (saved := meta["model"][key]) != (here := self.model.config[key]):
                raise ValueError(f"{key} is {saved} in the checkpoint, but {here} in this run")
        self.model.load_state_dict(checkpoint.unpack(arrays, "model"))
        self.learner.optimizer.load_state_dict(checkpoint.unpack(arrays, "optimizer"))
        progress = meta["progress"]
        for name in ("epoch", "batch", "history", "best", "seconds"):
            setattr(self, name, progress[name])
        self.warnings = progress.get("warnings", {})  # older runs have none
        self.learner.start_epoch(*progress["sums"])
