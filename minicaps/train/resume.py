"""Start or resume a training run and evaluate it."""

import json
from pathlib import Path

from minicaps import plotting, ranks
from minicaps.backend import choose_device
from minicaps.cli.command import usage
from minicaps.cli.signals import StopRequest
from minicaps.data import baselines
from minicaps.errors import CheckpointError, DataError, Diverged, NothingLearned, escaped
from minicaps.plotting.redrawing import draw_reconstructions
from minicaps.runs import checkpoint
from minicaps.runs.building import load_model
from minicaps.runs.configuration import options_of
from minicaps.storage import check_unused, locked, results_folder, write_csv, write_json
from minicaps.train.ancestry import fingerprints
from minicaps.train.defaults import settled, whole_size
from minicaps.train.options import resumed
from minicaps.train.progress import Display
from minicaps.train.summary import checksums, circumstances
from minicaps.train.trainer import Trainer

SLOWER = 0.25  # factor of the learning rate when training is restarted


class Session:
    """Training session of one command, with a controlled stop on SIGINT or SIGTERM."""

    def __init__(self, name, command):
        self.name, self.command, self.stop = name, command, StopRequest()
        self.batch_size = 1  # until there is a network

    def advice(self):
        """Return what to try if memory runs out."""
        smaller = "a smaller --size, or another --model"
        return f"try a smaller --batch-size, {smaller}" if self.batch_size > 1 else f"try {smaller}"

    def begin(self, options):
        """Start a new run in the folder options.run.out and return its summary at the end."""
        folder = Path(options.run.out)
        trainer = self.prepare(options)
        ranks.by_root(results_folder, folder)
        with ranks.held_by_root(locked(folder)):
            with usage():
                ranks.by_root(check_unused, folder)  # another run may have started during loading
            write_config(trainer)
            if (parts := _parts(trainer)) is not None:
                prints = {"train_fingerprints": fingerprints(trainer.training)}
                ranks.by_root(write_json, folder / "split.json", parts | prints)
            if skipped := trainer.data.skipped:
                ranks.by_root(write_csv, folder / "skipped.csv", ("file", "reason"), skipped)
            return self._train(trainer)

    def go_on(self, folder, given):
        """Resume the run in a folder, replacing saved options with the given options."""
        path = Path(folder, "last.npz")
        if not path.exists():
            raise CheckpointError(f"there is no checkpoint {path}: give the folder of a run")
        with checkpoint.resuming(folder) as saved:
            with checkpoint.fitting(path), usage():
                trainer = self.prepare(resumed(path, options_of(saved[1]), given))
                trainer.load(*saved)
                if trainer.optimization.epochs < (done := trainer.epoch):
                    raise ValueError(f"{done} epochs are already done: --epochs must not be lower")
            _check_parts(trainer, path.with_name("split.json"))
            write_config(trainer)
            if done == trainer.optimization.epochs:
                trainer.display.note(f"all {done} epochs are done: to train more, raise --epochs")
            return self._train(trainer)

    def prepare(self, options):
        """Create the trainer for a run without writing any files yet."""
        run = options.run
        with usage():
            if run.resume is None:
                ranks.by_root(check_unused, run.out)
            device = device_of(run)  # before data is downloaded
            ranks.by_root(options.data.fetch)
            dataset = options.data.load(run.seed, whole_size(options))
            display = Display(self.name, run.quiet)
            if run.resume is None:
                options, dataset = settled(options, dataset)
            trainer = make_trainer(options, dataset, device, display, self.stop)
        self.batch_size = options.optimization.batch_size
        return trainer

    def _train(self, trainer):
        """Train, evaluate, draw the figures, and print the result."""
        with self.stop.listening():
            trainer, summary = train(trainer, self.command)
            if ranks.is_root():
                _say(summary, trainer.warnings)
            ranks.by_root(draw, trainer)
        files = ", ".join(sorted(p.name for p in trainer.folder.iterdir()))
        print(f"Results: {escaped(trainer.folder)}/ ({files})")
        return summary


def device_of(run):
    """Choose the device of a run and its precision. run: `RunOptions`."""
    device = choose_device(run.device)
    device.allow_tf32(run.tf32 and (run.resume is None or device.kind == "gpu"))
    return device


def make_trainer(options, dataset, device, display, stop) -> Trainer:
    """Make the trainer of a run, with the parameters that a new run starts from.

    Its options record whether the images are inverted.
    """
    run = options.run
    if options.data.invert is not None:
        options = options.replace(invert="yes" if dataset.inverted else "no")
    trainer = Trainer(options, dataset, device, run.out, display, stop)
    if run.resume is None and run.start_from is not None:
        trainer.start_from(checkpoint.best_of(run.start_from))
    return trainer


def train(trainer, command) -> tuple[Trainer, dict]:
    """Finish training, evaluate the network, and write the summary.

    command: command or call that reproduces the run. Returns the trainer, which is a new one if
    training was restarted, and the summary.
    """
    trainer, found = _finished(trainer)
    summary = found | circumstances(trainer, command)
    ranks.by_root(write_json, trainer.folder / "summary.json", summary)
    return trainer, summary


def draw(trainer):
    """Draw the figures of a finished run."""
    folder, test = trainer.folder, trainer.data.test
    plotting.curves(trainer.history, folder / "curves.png")
    if trainer.options.model.reconstruction and test:
        model = load_model(folder, trainer.device)
        names, note = plotting.legible(trainer.data.class_names)
        if note:
            trainer.display.note(note)
        reason = draw_reconstructions(model, test, names, folder / "reconstructions.png")
        if reason:
            trainer.display.note(f"no figure of reconstructions: {reason}")


def _finished(trainer):
    """Run a trainer to the end, and restart it if it learns nothing; return it with its results.

    Each restart uses `SLOWER` times the learning rate of the attempt before.
    """
    while True:
        try:
            return trainer, trainer.run()
        except (Diverged, NothingLearned) as error:
            if not (left := trainer.optimization.restarts):
                raise
            rate = SLOWER * trainer.optimization.learning_rate
            told = f"{error}. Restarting with learning rate {rate:g}"
        options = trainer.options.replace(learning_rate=rate, restarts=left - 1, resume=None)
        again = make_trainer(options, trainer.data, trainer.device, trainer.display, trainer.stop)
        again.warnings = trainer.warnings | {f"restart {left}": told}
        trainer.display.warn(told)
        trainer = again
        write_config(trainer)


def write_config(trainer):
    """Write the options of a run and a description of its network to config.json."""
    config = {"options": trainer.options.to_dict(), "model": trainer.model.config}
    ranks.by_root(write_json, trainer.folder / "config.json", config)


# ---- the images of a run


def _parts(trainer):
    """Return the names of the images in each split of custom data, or None for other data."""
    if trainer.data.test.names is None:
        return None
    names = {name: p.names.tolist() if p else [] for name, p in trainer.splits.items()}
    return names | {"sha256": checksums(trainer)}


def _check_parts(trainer, path):
    """Raise DataError if the images or the splits have changed since the run began."""
    if (parts := _parts(trainer)) is None:
        return
    try:
        before = json.loads(path.read_text())
        same = {name: before[name] == parts[name] for name in trainer.splits}
        contents = before.get("sha256", parts["sha256"]) == parts["sha256"]  # older runs have none
    except (ValueError, TypeError, LookupError, AttributeError):  # damaged
        same, contents = {"": False}, False
    source, rest = trainer.options.data.name, "put them back, or start a new run"
    if not all(same.values()):
        raise DataError(
            f"the images in {source} differ from those listed in {path}, with which this run"
            f" began: {rest}"
        )
    if not contents:
        raise DataError(
            f"some images in {source} have changed since this run began, as the checksums in"
            f" {path} show: {rest}"
        )


# ---- the results of a run


def _say(summary, warnings):
    right, samples = summary["test_right"], summary["test_samples"]
    balanced = ""
    if "baselines" in summary:
        balanced = f", balanced {summary['test_balanced_accuracy']:.2%}"
    early = f", stopped after epoch {summary['epochs']} because validation no longer improved"
    print(
        f"Test accuracy {summary['test_accuracy']:.2%} ({right:,} of {samples:,} images"
        f"{balanced}) with the model of epoch {summary['best_epoch']}, after"
        f" {summary['training_seconds']:.0f} s of"
        f" training{early if summary['stopped_early'] else ''}."
    )
    if "baselines" in summary:
        print(baselines.line(summary["baselines"]))
    if "linear" in warnings:
        print(f"Note: {warnings['linear']}")
