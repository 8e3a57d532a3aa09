"""`minicaps.train --estimate`: predict the time and memory of a run from a few measured steps.

The steps use random images and run in a separate process. In a process that has already done other
work, memory retained by the allocator would hide the memory that the steps need.
"""

import json
import statistics
import sys
import time
from contextlib import suppress

import numpy as np

from minicaps import data
from minicaps.backend import choose_device
from minicaps.cli.allocator import keep_memory
from minicaps.cli.blas import one_blas_thread
from minicaps.cli.measuring import in_a_process, process_peak
from minicaps.data.compose import compose
from minicaps.errors import Interrupted
from minicaps.models.base import EVALUATION_BATCH
from minicaps.runs.configuration import Options
from minicaps.runs.inference import evaluate
from minicaps.train.progress import describe
from minicaps.train.trainer import Trainer

WARM = 2  # steps: after two, the optimizer has its state and the allocator has settled
STEPS, SECONDS = 10, 5.0  # steps to time, and the time after which to stop early
MIB = 2**20


def show(session, options):
    """Print the memory and time that a run with these options requires; do not write any files."""
    trainer = session.prepare(options)
    model, tested = trainer.model, len(trainer.data.test)
    describe(trainer)
    options, own = trainer.options, trainer.optimization
    size = min(own.batch_size, len(trainer.training))
    kinds = options.replace(batch_size=size, validation=0, patience=None).to_dict()
    train, classes = trainer.data.train, model.config["classes"]
    kinds["several"] = train.multi and not options.data.compose
    shape = train.pixels.shape[1:]
    found = json.loads(in_a_process("minicaps.train.forecast", json.dumps(kinds), *shape, classes))
    pictures = sum(part.nbytes for part in (trainer.data.train, trainer.data.test))
    memory = "unknown, because this system does not report it"
    if found["memory"] is not None:
        memory = f"{found['memory'] / MIB:,.0f} MiB for a step of {size} images"
    print(f"Memory: {memory}; {pictures / MIB:,.0f} MiB for all images")
    validated = len(trainer.validation or ())
    epoch = trainer.batches * found["step"] + validated * found["picture"]
    print(
        f"Time: {1000 * found['step']:,.1f} ms per step, {trainer.batches:,} steps per epoch, and"
        f" {validated:,} validation images: {_duration(epoch)} per epoch"
    )
    runs, most = options.run.seeds or 1, "at most " if own.patience else ""
    total = runs * (own.epochs * epoch + tested * found["picture"])
    several = f" in {runs} runs" if runs > 1 else ""
    print(
        f"Total: {most}{_duration(total)} for {own.epochs} epochs and a test on {tested:,}"
        f" images{several}"
    )


def _duration(seconds):
    if seconds < 90:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"


# ---- in a separate process


def main(kinds, channels, height, width, classes):
    """Print the memory and time of a training step and the evaluation time per image as JSON.

    Memory is given in bytes (null if unknown) and time in seconds.

    kinds: options as JSON, with `several` for images that have several classes.
    """
    keep_memory()
    with one_blas_thread():
        print(json.dumps(_measured(kinds, channels, height, width, classes)))


def _measured(kinds, channels, height, width, classes):
    """Measure a few training steps and an evaluation, as described in `main`."""
    kinds = json.loads(kinds)
    options, several = Options.from_dict(kinds), kinds["several"]
    device = choose_device(options.run.device)
    shape, classes = (int(channels), int(height), int(width)), int(classes)
    count = (WARM + STEPS) * options.optimization.batch_size
    names = tuple(map(str, range(classes)))
    split = _random(max(count, classes), shape, classes, options.data, several)
    made = data.Dataset("random", split, split, names)
    before, watch = process_peak(), Stopwatch(device)
    trainer = Trainer(options, made, device, ".", watch, watch)
    with suppress(Interrupted):
        trainer.train_epoch()
    memory = _peak_of(device, before)
    split = _random(max(EVALUATION_BATCH, classes), shape, classes, options.data, several)
    times = []
    for _ in range(WARM):
        began = time.perf_counter()
        evaluate(trainer.model, split, options.optimization.loss)
        times.append(time.perf_counter() - began)
    picture = min(times) / len(split)
    return {"memory": memory, "step": watch.step_time(), "picture": picture}


def _random(count, shape, classes, options, several):
    """Return random images with labels that suit the options.

    several: whether each image has two classes.
    """
    images, labels = (
        np.random.default_rng(0).random((count, *shape), "f"),
        np.arange(count) % classes,
    )
    if several:
        present = np.eye(classes, dtype=np.uint8)
        return data.Split(images, (present | np.roll(present, 1, axis=1))[labels])
    split = data.Split(images, labels)
    if options.compose:
        return compose(split, classes, count=options.compose, layout=options.layout)
    return split


def _peak_of(device, before):
    """Return the memory used by the steps in bytes: CuPy's pool on a GPU, else process memory."""
    if device.kind == "gpu":
        return device.xp.get_default_memory_pool().total_bytes()
    return None if before is None else process_peak() - before


class Stopwatch:
    """Display that times the steps of a training run and stops it after enough measurements."""

    def __init__(self, device):
        self.device, self.times = device, []

    def step(self, trainer, images):
        self.device.synchronize()
        self.times.append(time.perf_counter())

    def __bool__(self):
        return len(self.times) > WARM + 1 and self.times[-1] - self.times[WARM - 1] > SECONDS

    def step_time(self):
        return statistics.median(np.diff(self.times[WARM - 1 :]))


if __name__ == "__main__":
    main(*sys.argv[1:])
