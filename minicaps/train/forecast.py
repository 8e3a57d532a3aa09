"""`minicaps.train --estimate`: predict the time and memory of a run from a few measured steps.

The steps use random images and run in a separate process. In a process that has already done other
work, memory retained by the allocator would hide the memory that the steps need.
"""

import json
import statistics
import sys
import time
import tracemalloc
from contextlib import suppress

import numpy as np

from minicaps import data
from minicaps.backend import choose_device
from minicaps.cli.allocator import keep_memory
from minicaps.cli.blas import one_blas_thread
from minicaps.cli.measuring import available_memory, in_a_process, memory_limit, process_peak
from minicaps.data.compose import compose
from minicaps.data.stored import Stored
from minicaps.errors import Interrupted, ProcessError, counted
from minicaps.models.base import EVALUATION_BATCH
from minicaps.runs.configuration import Options
from minicaps.runs.inference import evaluate
from minicaps.train.progress import FORWARD, about, describe
from minicaps.train.trainer import Trainer

WARM = 2  # steps: after two, the optimizer has its state and the allocator has settled
STEPS, SECONDS = 10, 5.0  # steps to time, and the time after which to stop early
LONG = 8.0  # seconds; a longer step is extrapolated from fewer images
SHARE = 0.5  # of the available memory, which is all that an estimate may use
MIB, GB = 2**20, 1e9


def show(session, options):
    """Print the memory and time that a run with these options requires; do not write any files.

    Raises ProcessError if the run needs more memory than is available.
    """
    device = choose_device(options.run.device)  # CUDA reserves far more addresses than memory
    free = available_memory() if device.kind == "cpu" else None
    with memory_limit(free and free * SHARE):
        trainer = session.prepare(options)
    describe(trainer)
    options, own = trainer.options, trainer.optimization
    train, tested = trainer.data.train, trainer.data.test
    validated, count = len(trainer.validation or ()), len(trainer.training)
    size = min(own.batch_size, count)
    kinds = options.replace(batch_size=size, validation=0, patience=None).to_dict()
    kinds["several"] = train.multi and not options.data.compose
    shape, classes = train.pixels.shape[1:], trainer.model.config["classes"]
    held = [part for part in (train, tested) if not isinstance(part.pixels, Stored)]
    pictures = sum(part.nbytes for part in held)
    steps, tested = trainer.batches, len(tested)
    del trainer, train  # the process needs the memory
    found = json.loads(in_a_process("minicaps.train.forecast", json.dumps(kinds), *shape, classes))
    _tell_memory(found, size, pictures)
    epoch = steps * found["step"] + validated * found["picture"]
    roughly = "about " if found.get("tried", size) < size else ""
    print(
        f"Time: {roughly}{1000 * found['step']:,.1f} ms per step, {counted(steps, 'step')} per"
        f" epoch, and {counted(validated, 'validation image')}: {about(epoch)} per epoch"
    )
    runs, most = options.run.seeds or 1, "at most " if own.patience else ""
    total = runs * (own.epochs * epoch + tested * found["picture"])
    several = f" in {runs} runs" if runs > 1 else ""
    print(
        f"Total: {most}{about(total)} for {counted(own.epochs, 'epoch')} and a test on"
        f" {counted(tested, 'image')}{several}"
    )


def _tell_memory(found, size, pictures):
    """Print the memory that a step needs, or raise ProcessError if it is not available.

    found: what `main` prints. size: batch size. pictures: bytes of all images.
    """
    memory, free, tried = found["memory"], found.get("free"), found.get("tried", size)
    smaller = "a smaller --size, or another --model"
    if tried == 0:
        raise ProcessError(
            f"a step with a single image needs more than {SHARE * free / GB:.1f} GB of memory, half"
            f" of what is available: try {smaller}"
        )
    if free is not None and memory > free:
        advice = f"--batch-size {tried}, {smaller}" if size > 1 else smaller
        raise ProcessError(
            f"a step of {counted(size, 'image')} needs about {memory / GB:.1f} GB of memory, but"
            f" {free / GB:.1f} GB is available: try {advice}"
        )
    said = "unknown, because this system does not report it"
    if memory is not None:
        said = f"{memory / MIB:,.0f} MiB for a step of {counted(size, 'image')}"
    if tried < size:
        said = f"about {said}, estimated from a step of {tried:,}"
    print(f"Memory: {said}; {pictures / MIB:,.0f} MiB for all images")


# ---- in a separate process


def main(kinds, channels, height, width, classes):
    """Print the memory and time of a training step and the evaluation time per image as JSON.

    Memory is given in bytes (null if unknown) and time in seconds. If a step would need more than
    the fraction `SHARE` of the available memory ("free"), the numbers are extrapolated from a step
    with fewer images ("tried"; 0 if even a single image needs too much).

    kinds: options as JSON, with `several` for images that have several classes.
    """
    keep_memory()
    kinds = json.loads(kinds)
    options, several = Options.from_dict(kinds), kinds["several"]
    shape, classes = (int(channels), int(height), int(width)), int(classes)
    device, before = choose_device(options.run.device), process_peak()
    free = available_memory() if device.kind == "cpu" else None
    budget = free and free * SHARE
    with one_blas_thread(), memory_limit(budget):
        found = _grown(options, several, shape, classes, device, budget) if budget else None
        if found is None:
            found = _measured(options, several, shape, classes, device, before)
    print(json.dumps(found | {"free": free}))


def _grown(options, several, shape, classes, device, budget):
    """Take steps with 1, 2, 4, … images while they need at most the budget of memory and `LONG` s.

    Returns None if a whole batch does; otherwise, estimates for it from the last step.
    """
    size = options.optimization.batch_size
    tried, needs, seconds, lacking = 0, [], 0.0, False
    tracemalloc.start()
    try:
        trainer = _trainer(options, several, shape, classes, device, 1, None)
        batch = next(trainer.rest_of_epoch())
        trainer.learner.step(0, 0, *(part[:1] for part in batch))  # creates the optimizer's state
        while tried < size:
            count = min(size, max(1, 2 * tried))
            if tried > 1 and (_need(needs, count) > budget or 2 * seconds > LONG):
                break
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            began = time.perf_counter()
            trainer.learner.step(0, 0, *(part[:count] for part in batch))
            seconds = time.perf_counter() - began
            tried, needs = count, [(count, tracemalloc.get_traced_memory()[1]), *needs[:1]]
            needs = needs if len(needs) > 1 else [*needs, (0, before)]
        else:
            return None
    except MemoryError:
        lacking = True
    finally:
        tracemalloc.stop()
    memory = max(_need(needs, size), budget if lacking else 0) if needs else budget
    step = seconds * size / max(1, tried)
    return {"memory": memory, "step": step, "picture": step / size / FORWARD, "tried": tried}


def _need(needs, count):
    """Extrapolate the memory of a step with `count` images from the last two, (images, bytes)."""
    (last, most), (first, least) = needs
    return most + (count - last) * max(0, most - least) / (last - first)


def _trainer(options, several, shape, classes, device, steps, watch):
    """Return a trainer on random images for a number of steps."""
    count = max(steps * options.optimization.batch_size, classes)
    split = _random(count, shape, classes, options.data, several)
    made = data.Dataset("random", split, split, tuple(map(str, range(classes))))
    return Trainer(options, made, device, ".", watch, watch)


def _measured(options, several, shape, classes, device, before):
    """Measure a few training steps and an evaluation, as described in `main`.

    before: peak memory of the process at its start.
    """
    watch = Stopwatch(device)
    trainer = _trainer(options, several, shape, classes, device, WARM + STEPS, watch)
    with suppress(Interrupted):
        trainer.train_epoch()
    memory, step = _peak_of(device, before), watch.step_time()
    found = {"memory": memory, "step": step}
    split = _random(max(EVALUATION_BATCH, classes), shape, classes, options.data, several)
    times = []
    try:
        for _ in range(WARM):
            began = time.perf_counter()
            evaluate(trainer.model, split, options.optimization.loss)
            times.append(time.perf_counter() - began)
    except MemoryError:  # more images than in a step
        return found | {"picture": step / options.optimization.batch_size / FORWARD}
    return found | {"picture": min(times) / len(split)}


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
