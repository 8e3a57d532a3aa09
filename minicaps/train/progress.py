"""Display the training progress of a run."""

import sys
import time

from tqdm import tqdm


def describe(trainer):
    """Print a description of the device, the data and the network."""
    options, data, device = trainer.options, trainer.data, trainer.device
    print(f"Device: {device.name} ({device.reason})")
    print(
        f"Data: {options.data.name}, {len(trainer.training):,} training,"
        f" {len(trainer.validation or ()):,} validation, {len(data.test):,} test images"
    )
    if data.multi:
        print("Accuracy: fraction of images with exactly the present classes predicted")
    for sentence in data.notes:
        print(f"Note: {sentence}")
    model, loss = options.model, options.optimization.loss
    about = {"preset": model.preset, "routing": model.routing, "loss": loss}
    about = [f"{key} {value}" for key, value in about.items() if value is not None]
    size = trainer.model.number_of_parameters()
    print(f"Model: {model.name}, {', '.join(about)}, {size:,} parameters")


class Display:
    """Display of training progress, as a bar in a terminal and as lines of text elsewhere.

    If `quiet` is true, only warnings are shown.
    """

    BAR, LINE = 0.5, 30.0  # seconds between reads of the loss; each read waits for the device

    def __init__(self, name, quiet):
        self.name, self.quiet, self.bar, self.looked = name, quiet, None, 0.0

    def start(self, trainer):
        if self.quiet:
            return
        if self.bar is None:  # else, training was restarted
            describe(trainer)
        n = len(trainer.training)
        self.bar = tqdm(
            total=trainer.optimization.epochs * n,
            initial=trainer.epoch * n + trainer.seen(),
            unit=" images",
            unit_scale=True,
            disable=not (sys.stderr and sys.stderr.isatty()),  # no bar in a file or a pipe
        )
        if self.bar.disable:
            self.looked = time.perf_counter()  # a bar shows the loss at once

    def note(self, sentence):
        """Show a note about a setting that may be intentional."""
        if not self.quiet:
            tqdm.write(f"Note: {sentence}")

    def warn(self, sentence):
        """Show a warning, even if `quiet` is true."""
        tqdm.write(f"{self.name}: {sentence}", file=sys.stderr)

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
        print(
            f"epoch {epoch}/{trainer.optimization.epochs}  {seen:,} of {len(trainer.training):,}"
            f" images  train loss {loss} accuracy {accuracy}"
        )

    def epoch(self, trainer, row):
        if self.quiet:
            return
        text = f"epoch {row['epoch']}/{trainer.optimization.epochs}"
        for part in ("train", "validation"):
            if f"{part}_loss" in row:
                text += f"  {part} loss {row[f'{part}_loss']:.4f}"
                text += f" accuracy {row[f'{part}_accuracy']:.2%}"
        self.looked = time.perf_counter()
        self.bar.write(f"{text}  {row['images_per_second']:,.0f} images/s")
