"""Display the training progress of a run."""

import sys
import time

from tqdm import tqdm

from minicaps import ranks
from minicaps.cli.command import fail
from minicaps.errors import escaped
from minicaps.threads import cores

FORWARD = 3  # a training step takes about this many times as long as an evaluation


def describe(trainer):
    """Print a description of the device, the data and the network."""
    options, data, device = trainer.options, trainer.data, trainer.device
    print(f"Device: {device.name} ({device.reason})")
    if (count := ranks.count()) > 1:
        threads = f"{cores()} thread{'s' * (cores() > 1)}"
        print(f"Ranks: {count}, each with {threads} and its share of every batch")
    print(
        f"Data: {escaped(options.data.name)}, {len(trainer.training):,} training,"
        f" {len(trainer.validation or ()):,} validation, {len(data.test):,} test images"
    )
    if data.multi:
        print("Accuracy: fraction of images with exactly the present classes predicted")
    for sentence in data.notes:
        print(f"Note: {escaped(sentence)}")
    model, loss = options.model, options.optimization.loss
    kinds = {"preset": model.preset, "routing": model.routing, "loss": loss}
    kinds = [f"{key} {value}" for key, value in kinds.items() if value is not None]
    size = trainer.model.number_of_parameters()
    print(f"Model: {model.name}, {', '.join(kinds)}, {size:,} parameters")


def about(seconds):
    """Round a duration: seconds up to 90, then minutes up to 90, then hours."""
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"


class Display:
    """Display of training progress, as a bar in a terminal and as lines of text elsewhere.

    If `quiet` is true, only warnings are shown. Of several ranks, only rank 0 shows anything.
    """

    BAR, LINE = 0.5, 30.0  # seconds between reads of the loss; each read waits for the device
    LONG, SILENT = 60.0, 2.0  # seconds left, or of an evaluation, that are worth mentioning

    def __init__(self, name, quiet):
        self.name, self.quiet, self.bar = name, quiet or not ranks.is_root(), None
        self.looked = self.began = 0.0
        self.first = 0  # position at the start

    def start(self, trainer):
        if self.quiet:
            return
        if self.bar is None:  # else, training was restarted
            describe(trainer)
        self.began, self.first = time.perf_counter(), _position(trainer)
        self.bar = tqdm(
            total=trainer.optimization.epochs * len(trainer.training),
            initial=self.first,
            unit=" images",
            unit_scale=True,
            disable=not (sys.stderr and sys.stderr.isatty()),  # no bar in a file or a pipe
        )
        if self.bar.disable:
            self.looked = time.perf_counter()  # a bar shows the loss at once

    def note(self, sentence):
        """Show a note about a setting that may be intentional."""
        if not self.quiet:
            tqdm.write(f"Note: {escaped(sentence)}")

    def warn(self, sentence):
        """Show a warning, even if `quiet` is true."""
        if ranks.is_root():
            fail(self.name, sentence)

    def close(self):
        if self.bar is not None:
            self.bar.close()

    def step(self, trainer, images):
        if self.quiet:
            return
        self.bar.update(images)
        lines = self.bar.disable
        if time.perf_counter() - self.looked < (self.LINE if lines else self.BAR):
            return
        self.looked = time.perf_counter()
        trainer.learner.check_finite()
        epoch, seen = trainer.epoch + 1, trainer.seen()
        loss = f"{float(trainer.learner.loss_sum) / seen:.4f}"
        accuracy = f"{int(trainer.learner.right) / seen:.2%}"
        if not lines:
            self.bar.set_postfix(epoch=epoch, loss=loss, accuracy=accuracy)
            return
        _, left = self._left(trainer, self._pace(trainer))
        print(
            f"epoch {epoch}/{trainer.optimization.epochs}  {seen:,} of {len(trainer.training):,}"
            f" images  train loss {loss} accuracy {accuracy}  {left}"
        )

    def epoch(self, trainer, row):
        if self.quiet:
            return
        text = f"epoch {row['epoch']}/{trainer.optimization.epochs}"
        for part in ("train", "validation"):
            if f"{part}_loss" in row:
                text += f"  {part} loss {row[f'{part}_loss']:.4f}"
                text += f" accuracy {row[f'{part}_accuracy']:.2%}"
            if f"{part}_balanced_accuracy" in row:
                text += f" balanced {row[f'{part}_balanced_accuracy']:.2%}"
        self.looked = time.perf_counter()
        text += f"  {row['images_per_second']:,.0f} images/s"
        # Resumed within this epoch, which may have lacked no more than its validation
        resumed = _position(trainer) - self.first < len(trainer.training)
        pace = 1 / row["images_per_second"] if resumed else self._pace(trainer)
        left, said = self._left(trainer, pace)
        self.bar.write(f"{text}  {said}" if left > self.LONG else text)

    def test(self, trainer):
        """Mention an evaluation on the test set that takes a while, where no bar is shown."""
        count = len(trainer.data.test)
        if self.quiet or not self.bar.disable or not trainer.history:
            return
        seconds = count / (FORWARD * trainer.history[-1]["images_per_second"])
        if seconds > self.SILENT:
            print(f"Testing on {count:,} images, about {about(seconds)}")

    def _pace(self, trainer):
        """Return the seconds per image since the start."""
        return (time.perf_counter() - self.began) / (_position(trainer) - self.first)

    def _left(self, trainer, pace):
        """Estimate the remaining seconds of training from those per image, and in words."""
        own = trainer.optimization
        left = pace * (own.epochs * len(trainer.training) - _position(trainer))
        return left, f"{'at most' if own.patience else 'about'} {about(left)} left"


def _position(trainer):
    """Return the number of images seen in all epochs so far."""
    return trainer.epoch * len(trainer.training) + trainer.seen()
