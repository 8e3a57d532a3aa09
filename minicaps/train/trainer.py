"""The training loop: from data and a model to a run folder with checkpoints and measurements.

A run can be stopped after any step and goes on bit-equal on the CPU, with the same number of cores:
what is random in a step depends on (seed, epoch, batch) alone, and everything else is in the
checkpoint.
"""

import time
from pathlib import Path

import numpy as np

from minicaps import optim
from minicaps.backend import to_host
from minicaps.data.batches import batches, number_of_batches, resident
from minicaps.data.dataset import count_classes
from minicaps.data.images import background
from minicaps.errors import CheckpointError, Diverged, Interrupted
from minicaps.models.inputs import tensor_for
from minicaps.models.losses import check_several, classification_loss, spread_margin
from minicaps.models.multilabel import one_at_a_time, reconstruction_loss, right_answers
from minicaps.runs import checkpoint
from minicaps.runs.building import build_model, load_model, tell_apart
from minicaps.runs.inference import evaluate
from minicaps.storage import write_csv
from minicaps.train import diagnosis


class Trainer:
    """Trains one model on one data set.

    options: `minicaps.runs.configuration.Options`. data: a `Dataset`. folder: an existing
    folder for the results. display: is told of every step and epoch (see
    `minicaps.train.progress`). warnings: {kind: sentence} of what looked wrong so far, each told
    once.
    """

    def __init__(self, options, data, device, folder, display, stop):
        self.options, self.data, self.device = options, data, device
        self.folder, self.display, self.stop = Path(folder), display, stop
        self.optimization = own = options.optimization
        self.training, self.validation = data.train, None
        if options.data.validation:
            parts = data.cut_validation(options.data.validation, options.run.seed)
            self.training, self.validation = parts
        elif own.patience:
            raise ValueError("--patience waits for validation to improve: it needs a --validation")
        self.model = build_model(options, data).astype(np.dtype(options.run.precision)).to(device)
        if data.multi:
            check_several(own.loss, self.model)
        make = {"adam": optim.Adam, "sgd": optim.SGD}[own.optimizer]
        parameters = self.model.named_parameters()
        self.optimizer = make(parameters, own.learning_rate, weight_decay=own.weight_decay)
        self.background = background(self.training.pixels)
        self.training = resident(self.training, device)
        self.validation = self.validation and resident(self.validation, device)
        self.batches = number_of_batches(len(self.training), own.batch_size)
        self.epoch = self.batch = 0
        self._rest_of_epoch()  # refuses a shift that does not fit now, not in training
        self.history, self.best, self.seconds, self.warnings = [], None, 0.0, {}
        self._start_sums()

    def _start_sums(self, loss=0.0, reconstruction=0.0, right=0):
        """Sums over the epoch, and the first bad step: on the device, read only when shown."""
        xp = self.device.xp
        self.loss_sum, self.reconstruction_sum = xp.asarray(loss), xp.asarray(reconstruction)
        self.right, self.first_bad = xp.asarray(right), xp.asarray(-1)
        self.gradient_norm = xp.asarray(0.0)  # of the last step of the epoch

    def run(self):
        """Train to the last epoch; return the summary of the run."""
        self.display.start(self)
        few = diagnosis.few_steps(self.optimization, len(self.training))
        if self.options.run.start_from is None:  # else it has learned already
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
            with np.errstate(over="ignore", invalid="ignore"):  # check_finite says more than NumPy
                while self.epoch < self.optimization.epochs and not self._lost_patience():
                    self.train_epoch()
                    self._finish_epoch()
                return self._summary()
        except Interrupted:
            self.save("last.npz")
            raise
        finally:
            self.display.close()

    def _tell(self, kind, sentence, how=None):
        """Tell of what looks wrong, if anything (sentence is not None), once of every kind."""
        if sentence and kind not in self.warnings:
            self.warnings[kind] = sentence
            (how or self.display.warn)(sentence)

    def _lost_patience(self):
        """Tell whether validation has not improved for as many epochs as `patience` allows."""
        patience = self.optimization.patience
        return bool(patience and self.best) and self.epoch - self.best["epoch"] >= patience

    def _rest_of_epoch(self):
        """Return an iterator over the batches of this epoch that are not done yet."""
        options = self.options
        return batches(
            self.training,
            self.optimization.batch_size,
            seed=options.run.seed,
            epoch=self.epoch,
            start=self.batch,
            shift=options.data.shift,
            parts=bool(options.data.compose and options.model.reconstruction),
        )

    def train_epoch(self):
        """Take all steps of this epoch that are not done yet."""
        started, before = time.perf_counter(), self.seconds
        for batch in self._rest_of_epoch():
            if self.stop:
                raise Interrupted
            self._step(*batch)
            self.batch += 1
            self.seconds = before + time.perf_counter() - started
            self.display.step(self, len(batch[0]))
        self.device.synchronize()  # a GPU is behind: its time counts
        self.seconds = before + time.perf_counter() - started

    def _step(self, images, given_labels, parts=None):
        xp = self.device.xp
        images, labels = tensor_for(self.model, images), self.device.put(given_labels)
        self.model.reseed(self.options.run.seed, self.epoch, self.batch)
        routed = self.model(images)
        loss, reported = self._losses(routed.activations, labels)
        if self.options.model.reconstruction:
            error = self._reconstruction(routed.poses, images.data, labels, given_labels, parts)
            self.reconstruction_sum = self.reconstruction_sum + error.data * len(labels)
            loss = loss + error
        bad = (self.first_bad < 0) & ~xp.isfinite(loss.data)
        self.first_bad = xp.where(bad, self.optimizer.steps + 1, self.first_bad)
        if self.device.kind == "cpu" and bad:  # a GPU would have to be waited for
            self._diverged(
                "loss", self.optimizer.steps + 1, diagnosis.where(self.model, images.data)
            )
        self.model.zero_grad()
        loss.backward()
        if self.batch == self.batches - 1:
            self.gradient_norm = optim.gradient_norm(self.model.parameters())
        if self.optimization.clip:
            optim.clip_gradient_norm(self.model.parameters(), self.optimization.clip)
        self.optimizer.learning_rate = self.learning_rate(self.batch)
        self.optimizer.step()
        self.loss_sum = self.loss_sum + reported.data * len(labels)
        self.right = self.right + right_answers(self.model, routed.activations.data, labels).sum()

    def _losses(self, activations, labels):
        """The loss to make smaller, and the one to report: spread loss at its last margin."""
        name = self.optimization.loss
        margin = spread_margin(self.epoch + self.batch / self.batches)
        loss = classification_loss(name, self.model, activations, labels, margin)
        if name != "spread":
            return loss, loss
        return loss, classification_loss(name, self.model, activations.detach(), labels)

    def _reconstruction(self, poses, images, labels, given_labels, parts):
        """The reconstruction loss; given_labels: of several classes, they are on the host."""
        keep = [labels]
        if self.data.multi:
            keep = [self.device.put(one) for one in one_at_a_time(given_labels)]
        if parts is not None:
            parts = tensor_for(self.model, parts).data
        weight = self.options.model.reconstruction
        return reconstruction_loss(self.model, poses, keep, images, parts, weight=weight)

    def learning_rate(self, batch):
        """The learning rate of the step with this batch of the epoch."""
        own, epoch = self.optimization, self.epoch + batch / self.batches
        return own.learning_rate * optim.SCHEDULES[own.schedule](epoch, own.epochs, own.decay)

    def check_finite(self):
        """Raise Diverged if a loss so far was infinite or NaN (waits for the device)."""
        if (step := int(self.first_bad)) >= 0:
            self._diverged("loss", step)

    def _diverged(self, what, step, where=None):
        epoch = (step - 1) // self.batches + 1
        raise Diverged(
            f"the {what} became infinite or NaN in step {step} (epoch {epoch})"
            f"{', first ' + where if where else ''}. The likely cause is a step too large: try a"
            f" smaller --learning-rate (it was {self.optimization.learning_rate:g}), or --clip 1"
        )

    def seen(self):
        """Number of training samples of this epoch so far."""
        return min(self.batch * self.optimization.batch_size, len(self.training))

    def _finish_epoch(self):
        self.check_finite()
        row = {
            "epoch": self.epoch + 1,
            "train_loss": float(self.loss_sum) / len(self.training),
            "train_accuracy": int(self.right) / len(self.training),
        }
        if self.options.model.reconstruction:
            row["reconstruction_loss"] = float(self.reconstruction_sum) / len(self.training)
        answers = None
        if self.validation:
            answers = self.device.xp.zeros(self.model.config["classes"], np.int64)
            loss, right = self._evaluate(self.model, self.validation, answers=answers)
            if not np.isfinite(loss):
                self._diverged("validation loss", self.optimizer.steps)
            row |= {
                "validation_loss": loss,
                "validation_accuracy": right / len(self.validation),
            }
        seconds = self.seconds - sum(row["seconds"] for row in self.history)
        row |= {
            "learning_rate": self.learning_rate(self.batches - 1),
            "seconds": seconds,
            "images_per_second": len(self.training) / seconds,
        }
        self.history.append(row)
        self.epoch, self.batch = self.epoch + 1, 0
        self._diagnose(row, answers)
        self._start_sums()
        quality = [row.get("validation_accuracy", 0), -row.get("validation_loss", 0)]
        if self.best is None or not self.validation or quality > self.best["quality"]:
            self.best = {"epoch": self.epoch, "quality": quality}
            self.save("best.npz")
        self.save("last.npz")
        rows = [list(row.values()) for row in self.history]
        write_csv(self.folder / "metrics.csv", list(row), rows)
        self.display.epoch(self, row)

    def _diagnose(self, row, answers):
        """Tell what looks wrong after an epoch; answers (J,): of validation, by class, or None."""
        part = "train" if answers is None else "validation"
        labels = to_host((self.validation or self.training).labels)
        present = count_classes(labels, self.model.config["classes"])
        if self.optimization.loss == "margin":
            loss, accuracy = row[f"{part}_loss"], row[f"{part}_accuracy"]
            self._tell("stuck", diagnosis.stuck(loss, accuracy, present / len(labels)))
        self._tell("gradient", diagnosis.exploding(float(self.gradient_norm)))
        if answers is not None and 2 * self.epoch > self.optimization.epochs:
            names = self.data.class_names
            never = diagnosis.never_predicted(to_host(answers), present, len(labels), names)
            self._tell("never predicted", never)

    def _evaluate(self, model, split, **keywords):
        return evaluate(model, split, self.optimization.loss, stop=self.stop, **keywords)

    def save(self, name):
        """Write a checkpoint of everything that going on needs."""
        self.check_finite()
        progress = {
            "epoch": self.epoch,
            "batch": self.batch,
            "sums": [float(self.loss_sum), float(self.reconstruction_sum), int(self.right)],
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
                "background": self.background,
                "multi": self.data.multi,
            },
            "options": self.options.to_dict(),
            "progress": progress,
        }
        state = self.optimizer.state_dict()
        steps = {"steps": np.asarray(state.pop("steps"))}
        arrays = checkpoint.pack(model=self.model.state_dict(), optimizer=state | steps)
        if not all(np.isfinite(array).all() for array in arrays.values()):
            self._diverged("model", self.optimizer.steps)  # by a step that had a finite loss
        checkpoint.save(self.folder / name, arrays, meta)

    def start_from(self, path):
        """Take the parameters of a checkpoint; ValueError if they do not fit the model."""
        arrays, meta = checkpoint.load(path, needs=("model", "options"))
        try:
            self.model.load_state_dict(checkpoint.unpack(arrays, "model"))
        except ValueError as error:
            here = {"model": self.model.config, "options": self.options.to_dict()}
            why = tell_apart(meta, here) or error
            raise ValueError(
                f"{path} holds another network: {why}; give the same options and data as its run"
                " (they are in its config.json), or leave --start-from out"
            ) from error

    def load(self, arrays, meta):
        """Go on from a checkpoint of this run; ValueError if it does not fit the data."""
        for key in ("input_shape", "classes"):
            if (saved := meta["model"][key]) != (here := self.model.config[key]):
                raise ValueError(f"{key} is {saved} in the checkpoint, but {here} in this run")
        self.model.load_state_dict(checkpoint.unpack(arrays, "model"))
        self.optimizer.load_state_dict(checkpoint.unpack(arrays, "optimizer"))
        progress = meta["progress"]
        for name in ("epoch", "batch", "history", "best", "seconds"):
            setattr(self, name, progress[name])
        self.warnings = progress.get("warnings", {})  # older runs kept none
        self._start_sums(*progress["sums"])

    def _summary(self):
        """Measure the best model on the test data, once."""
        best = load_model(path := self.folder / "best.npz", self.device)
        if best.config != self.model.config:
            raise CheckpointError(f"{path} holds another network than this run trains")
        loss, right = self._evaluate(best, self.data.test)
        summary = {
            "test_accuracy": right / len(self.data.test),
            "test_right": right,
            "test_samples": len(self.data.test),
            "test_loss": loss,
            "best_epoch": self.best["epoch"],
            "epochs": self.epoch,
            "stopped_early": self.epoch < self.optimization.epochs,
            "parameters": self.model.number_of_parameters(),
            "training_seconds": round(self.seconds, 3),
            "warnings": list(self.warnings.values()),
        }
        if self.validation:
            summary["validation_accuracy"] = self.history[self.best["epoch"] - 1][
                "validation_accuracy"
            ]
        return summary
