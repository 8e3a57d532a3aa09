"""`python -m minicaps.train`: train a capsule network and write a run folder."""

import json
import platform
import shlex
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
from tqdm import tqdm

import minicaps
from minicaps import checkpoint, data, ops, plotting
from minicaps.backend import choose_device, to_host
from minicaps.command import fail, guarded, start
from minicaps.data.batches import batches
from minicaps.graph import no_grad
from minicaps.models import MODELS
from minicaps.multilabel import redraw
from minicaps.options import DEFAULTS, complete, make_parser
from minicaps.tensor import Tensor
from minicaps.training import (
    Interrupted,
    StopRequest,
    Trainer,
    load_model,
    write_json,
)

NAME = "minicaps.train"
DRAWN = 10  # test pictures that are redrawn
# Options that may go with --resume
CHANGEABLE = {"resume", "epochs", "patience", "device", "data_dir", "quiet"}


def main(arguments=None):
    """Run the command; return its exit code: 0 done, 1 a failure, 2 wrong usage, 128+n a signal."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = make_parser()
    given = vars(parser.parse_args(arguments))
    work = partial(_run, parser, given, shlex.join(["python", "-m", NAME, *arguments]))
    return guarded(NAME, work, no_memory="try a smaller --batch-size")


def _run(parser, given, command):
    try:
        options, saved = _resumed(given) if "resume" in given else (complete(given), None)
        trainer, stop = _prepare(options, saved)
    except ValueError as error:  # a value that makes no sense, found before any training
        parser.error(str(error))
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        if "resume" not in given:
            raise
        name = Path(given["resume"], "last.npz")
        return fail(NAME, f"{name} does not fit this minicaps: {error!r}")
    try:
        with stop.listening():
            _train(trainer, options, command)
    except Interrupted:
        resume = f"python -m {NAME} --resume {shlex.quote(str(trainer.folder))}"
        return fail(NAME, f"stopped and saved. Go on with:\n  {resume}", 128 + stop.signal)


def _resumed(given):
    """Take the options of the run to resume; only those in CHANGEABLE may be given anew."""
    if fixed := sorted(given.keys() - CHANGEABLE):
        names = ", ".join("--" + name.replace("_", "-") for name in fixed)
        raise ValueError(f"{names} cannot change when a run is resumed: start a new run")
    folder = Path(given["resume"])
    arrays, meta = checkpoint.load(folder / "last.npz", needs=("model", "options", "progress"))
    options = {**DEFAULTS, **meta["options"], "quiet": False, **given, "out": str(folder)}
    options["loss"] = options["loss"] or MODELS[options["model"]].loss  # older runs do not name it
    return options, (arrays, meta)


def _prepare(options, saved):
    """Load the data, build the model and make the folder; nothing is trained yet."""
    out = Path(options["out"])
    if saved is None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(
            f"{out} exists already: choose another --out, or go on with --resume {out}"
        )
    device = choose_device(options["device"])
    device.allow_tf32(options["tf32"] and (saved is None or device.kind == "gpu"))
    dataset = data.load(
        options["data"],
        folder=options["data_dir"],
        limit=options["limit"],
        seed=options["seed"],
        size=options["size"],
        compose=options["compose"],
        layout=options["layout"],
    )
    stop = StopRequest()
    trainer = Trainer(options, dataset, device, out, Display(options["quiet"]), stop)
    if saved is None and options["start_from"] is not None:
        trainer.start_from(Path(options["start_from"], "best.npz"))
    if saved is not None:
        trainer.load(*saved)
        if options["epochs"] < trainer.epoch:
            raise ValueError(f"{trainer.epoch} epochs are done already: --epochs must not be fewer")
        _check_split(trainer, out / "split.json")
    out.mkdir(parents=True, exist_ok=True)
    config = {"options": options, "model": trainer.model.config}
    write_json(out / "config.json", config, new=saved is None)
    if saved is None and (names := _split_names(trainer)) is not None:
        write_json(out / "split.json", names, new=True)
    return trainer, stop


def _split_names(trainer):
    """Which of the user's pictures are in which part; None for data that is not the user's."""
    parts = {"train": trainer.training, "validation": trainer.validation, "test": trainer.data.test}
    if trainer.data.test.names is None:
        return None
    return {name: part.names.tolist() if part else [] for name, part in parts.items()}


def _check_split(trainer, path):
    """Refuse to go on with other pictures than the run began with, or with others to test on."""
    if (names := _split_names(trainer)) is None:
        return
    try:
        same = json.loads(path.read_text()) == names
    except ValueError:  # damaged
        same = False
    if not same:
        raise data.DataError(
            f"{trainer.options['data']} has other pictures than {path} names, with which this run"
            " began: put them back, or start a new run"
        )


def _train(trainer, options, command):
    """Train, measure, draw, and say what came out."""
    summary = trainer.run() | {
        "device": trainer.device.name,
        "tf32": options["tf32"] and trainer.device.kind == "gpu",
        "versions": {
            "minicaps": minicaps.__version__,
            "python": platform.python_version(),
            trainer.device.xp.__name__: trainer.device.xp.__version__,
            "numpy": np.__version__,
        },
        "command": command,
    }
    folder = trainer.folder
    write_json(folder / "summary.json", summary)
    plotting.curves(trainer.history, folder / "curves.png")
    if options["reconstruction"]:
        _draw_reconstructions(trainer, folder / "reconstructions.png")
    right, samples = summary["test_right"], summary["test_samples"]
    early = f", stopped after epoch {summary['epochs']} as validation no longer improved"
    print(
        f"Test accuracy {summary['test_accuracy']:.2%} ({right:,} of {samples:,} pictures), by the"
        f" model of epoch {summary['best_epoch']}, after {summary['training_seconds']:.0f} s of"
        f" training{early if summary['stopped_early'] else ''}."
    )
    print(f"Results: {folder}/ ({', '.join(sorted(p.name for p in folder.iterdir()))})")


def _draw_reconstructions(trainer, path):
    """Draw one test picture of each class, and what the best model's decoder makes of it."""
    model = load_model(trainer.folder / "best.npz", trainer.device).eval()
    if trainer.data.multi:
        some = trainer.data.test.take(np.arange(min(DRAWN, len(trainer.data.test))))
        seen, drawn = redraw(model, some.images, some.labels, trainer.device)
        names = trainer.data.class_names
        plotting.members(some.images, drawn, some.labels, seen, names, path)
        return
    labels, names = trainer.data.test.labels, trainer.data.class_names
    chosen = trainer.data.test.take(np.unique(labels, return_index=True)[1])
    images, labels = next(batches(chosen, len(chosen)))
    with no_grad():
        routed = model(Tensor(trainer.device.put(images.astype(trainer.dtype, copy=False))))
        answers = routed.activations.argmax(axis=1)
        drawn = model.reconstruct(routed.poses, answers).numpy()
    answers = to_host(answers)
    plotting.reconstructions(
        images, drawn, [names[k] for k in labels], [names[k] for k in answers], path
    )


def stuck(loss, classes):
    """Say what it means if the mean margin loss is where nothing is learned; None elsewhere."""
    for length, state in ((0, "dead"), (1, "saturated")):
        lengths, label = np.full((1, classes), float(length)), np.zeros(1, np.int64)
        if np.isclose(loss, ops.margin_loss(Tensor(lengths), label).data, rtol=1e-3):
            return (
                f"the margin loss is {loss:.4g}: all classes have activation {length}. The"
                f" network is {state}, no gradient comes through: try a smaller --learning-rate"
                " or --weight-decay"
            )
    return None


class Display:
    """Tells a person how far the training is: by a bar at a terminal, else by lines.

    Silent when `quiet`.
    """

    BAR, LINE = 0.5, 30.0  # seconds between looks at the loss; each look waits for the device

    def __init__(self, quiet):
        self.quiet, self.bar, self.looked = quiet, None, 0.0

    def start(self, trainer):
        if self.quiet:
            return
        o, n = trainer.options, len(trainer.training)
        device, model = trainer.device, trainer.model
        print(f"Device: {device.name} ({device.reason})")
        print(
            f"Data: {o['data']}, {n:,} training, {len(trainer.validation or ()):,} validation,"
            f" {len(trainer.data.test):,} test pictures"
        )
        for note in trainer.data.notes:
            print(f"Note: {note}")
        about = [f"{key} {o[key]}" for key in ("preset", "routing", "loss") if o[key] is not None]
        size = model.number_of_parameters()
        print(f"Model: {o['model']}, {', '.join(about)}, {size:,} parameters")
        self.bar = tqdm(
            total=o["epochs"] * n,
            initial=trainer.epoch * n + trainer.seen(),
            unit=" images",
            unit_scale=True,
            disable=not (sys.stderr and sys.stderr.isatty()),  # no bar in a file or a pipe
        )
        if self.bar.disable:
            self.looked = time.perf_counter()  # a bar is filled in at once

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
        trainer.check_finite()
        epoch, seen = trainer.epoch + 1, trainer.seen()
        loss = f"{float(trainer.loss_sum) / seen:.4f}"
        accuracy = f"{int(trainer.right) / seen:.2%}"
        if not lines:
            self.bar.set_postfix(epoch=epoch, loss=loss, accuracy=accuracy)
            return
        print(
            f"epoch {epoch}/{trainer.options['epochs']}  {seen:,} of {len(trainer.training):,}"
            f" pictures  train loss {loss} accuracy {accuracy}"
        )

    def epoch(self, trainer, row):
        loss, classes = row.get("validation_loss", row["train_loss"]), len(trainer.data.class_names)
        if trainer.options["loss"] == "margin" and (warning := stuck(loss, classes)):
            tqdm.write(f"{NAME}: {warning}", file=sys.stderr)
        if self.quiet:
            return
        text = f"epoch {row['epoch']}/{trainer.options['epochs']}"
        for part in ("train", "validation"):
            if f"{part}_loss" in row:
                text += f"  {part} loss {row[f'{part}_loss']:.4f}"
                text += f" accuracy {row[f'{part}_accuracy']:.2%}"
        self.looked = time.perf_counter()
        self.bar.write(f"{text}  {row['images_per_second']:,.0f} images/s")


if __name__ == "__main__":
    sys.exit(start(main))
