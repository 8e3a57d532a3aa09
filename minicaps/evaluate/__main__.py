"""`python -m minicaps.evaluate RUN`: evaluate a trained network and show its errors."""

import itertools
import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import minicaps
from minicaps import data, ranks
from minicaps.backend import choose_device
from minicaps.cli.command import (
    WrongUsage,
    add_device,
    command_line,
    guarded,
    number,
    parser_for_run,
    start,
)
from minicaps.data import baselines
from minicaps.data.arguments import data_source
from minicaps.data.ink import CHOICES
from minicaps.data.own.files import name_of
from minicaps.errors import escaped
from minicaps.evaluate import select
from minicaps.evaluate.report import MANY, Evaluation, report, report_classes
from minicaps.models.base import EVALUATION_BATCH
from minicaps.runs.inference import classify
from minicaps.runs.run import open_run
from minicaps.storage import results_folder, write_csv, write_json

NAME = "minicaps.evaluate"
LONGEST = 100  # characters of the data's name in the name of a folder
ABOUT = """\
Evaluate a trained network: write its accuracy with a confidence interval,
metrics for each class, the confusion matrix, and a figure of the worst
predictions to a folder.
"""
EXAMPLES = """\
examples (the first line creates a run in about a minute):
  python -m minicaps.train --out runs/first
  python -m minicaps.evaluate runs/first
  python -m minicaps.evaluate runs/first --data mnist
"""


def main(arguments=None):
    """Run the command and return the exit code.

    The exit code is 0 on success, 1 on failure, 2 on usage errors, and 128+n on signal n.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = _parser()
    options = parser.parse_args(_without_values(arguments))
    command = command_line(NAME, *arguments)
    work = partial(_run, parser, options, command)
    smaller = "try a smaller --batch-size"
    alone = "close other programs, or evaluate a network for smaller images"
    return guarded(NAME, work, no_memory=smaller if options.batch_size > 1 else alone)


def _run(parser, options, command):
    run = open_run(options.run, choose_device(options.device))
    source = run.options.data
    if options.data not in (None, source.name):
        source = replace(source, name=options.data, data_dir=None)
    ranks.by_root(replace(source, data_dir=options.data_dir or source.data_dir).fetch)
    try:
        chosen = select.choose(
            run,
            source=options.data,
            part=options.part,
            folder=options.data_dir,
            frames=options.frames,
            skip_bad=options.skip_bad,
            invert=CHOICES.get(options.invert),
        )
        _check_top(options.top, run.model, chosen.split)
        folder = ranks.by_root(_results_folder, options.out, run, chosen)
    except WrongUsage as error:
        parser.error(str(error))
    if not options.quiet:
        _introduce(run, chosen)
    model, size, quiet = run.model, options.batch_size, options.quiet
    activations = classify(model, chosen.split, size, quiet=quiet, path=run.path)
    found = Evaluation(model, chosen.split, activations)
    result = found.measure(options.top) | _baselines(run, chosen)
    origin = {
        "checkpoint": str(run.path),
        "data": chosen.source,
        "part": chosen.part,
        "inverted": chosen.inverted,
        "notes": chosen.notes,
        "device": run.device.name,
        "minicaps": minicaps.__version__,
        "command": command,
    }
    notes = ranks.by_root(_write, folder, found, origin | result)
    lines = report(result)
    print("\n".join(lines if options.quiet else lines + report_classes(result)))
    for note in () if options.quiet else notes:
        print(f"Note: {escaped(note)}")
    files = ", ".join(sorted(path.name for path in folder.iterdir()))
    print(f"Results: {escaped(folder)}/ ({files})")


def _baselines(run, chosen):
    """Return the baselines to report for single-label custom data.

    That of the linear classifier is known for the test images of the run only.
    """
    if chosen.source in data.NAMES or run.model.multi or chosen.split.multi:
        return {}
    try:
        summary = json.loads(run.companion("summary.json").read_text())
        stored, test = summary["baselines"], summary["data_sha256"]["test"]
        if chosen.split.sha256() == test:
            return {"baselines": stored}
        labels = [run.model.class_names.index(stored["majority"]["class"])]
    except (OSError, ValueError, TypeError, LookupError):  # an older run, or an unfinished one
        labels = chosen.split.labels
    most, accuracy = baselines.majority(labels, chosen.split)
    name = run.model.class_names[most]
    return {"baselines": {"majority": {"class": name, "accuracy": accuracy}}}


def _introduce(run, chosen):
    size = run.model.number_of_parameters()
    print(f"Run: {escaped(run.path)} ({run.options.model.name}, {size:,} parameters)")
    print(f"Data: {escaped(chosen.source)}, {len(chosen.split):,} images ({chosen.part})")
    for note in chosen.notes:
        print(f"Note: {escaped(note)}")


def _check_top(top, model, split):
    """Raise `WrongUsage` if the top-K accuracy is not defined or always 1."""
    if top is not None and (model.multi or split.multi):
        raise WrongUsage("--top applies to single-label data only: leave it out")
    if top is not None and top >= (classes := model.config["classes"]):
        raise WrongUsage(f"--top {top} of {classes} classes is always correct: choose a smaller K")


# ---- writing


def _results_folder(out, run, chosen):
    return _claim(_unused(out, run, chosen), chosen.source)


def _unused(out, run, chosen):
    """Choose the folder for results, which must not hold an evaluation of other images.

    out: the folder given by the user, or None for the usual one.
    """
    images = [chosen.source, chosen.part]
    if out is not None:
        if (earlier := _images_of(Path(out))) not in (None, images):
            raise WrongUsage(
                f"{out} holds an evaluation of {earlier[0]} ({earlier[1]}): choose another --out"
            )
        return Path(out)
    name = _name(run, chosen)
    for k in itertools.count(1):
        folder = run.place_of(name if k == 1 else f"{name}-{k}")
        if _images_of(folder) in (None, images):
            return folder


def _name(run, chosen):
    words, usual = ["evaluation"], "test"
    if chosen.source != run.options.data.name:
        words.append(name_of(chosen.source)[:LONGEST])
        usual = "all"
    return "-".join(words + [chosen.part] * (chosen.part != usual))


def _images_of(folder):
    """Return the data and the part whose evaluation a folder holds, or None if it holds none."""
    try:
        found = json.loads((folder / "evaluation.json").read_text())  # written first
        return [found[key] for key in ("data", "part", "checkpoint")][:2]
    except (OSError, ValueError, TypeError, LookupError):
        return None


def _claim(folder, source):
    """Create the results folder or reuse one from an earlier evaluation; reject other folders."""
    if source not in data.NAMES and _lies_in(folder.resolve(), Path(source).resolve()):
        raise WrongUsage(f"{folder} is inside the data folder: choose another --out")
    results_folder(folder)
    if any(folder.iterdir()) and _images_of(folder) is None:
        raise WrongUsage(
            f"{folder} exists but was not created by an evaluation: choose another --out"
        )
    return folder


def _lies_in(folder, outer):
    return outer in (folder, *folder.parents)


def _write(folder, found, result):
    """Write the metrics, the prediction for each image, and the figures; return notes on them."""
    write_json(folder / "evaluation.json", result)
    for name, table in found.tables(result).items():
        write_csv(folder / name, *table)
    return found.draw(result, folder)


# ---- options


def _without_values(arguments):
    """Let --invert without a value stand before the run, as in `--invert runs/first`."""
    following = [*arguments, ""][1:]
    return [
        "--invert=yes" if one == "--invert" and after not in CHOICES else one
        for one, after in zip(arguments, following, strict=True)
    ]


def _parser():
    parser = parser_for_run(NAME, ABOUT, EXAMPLES)
    group = parser.add_argument_group("images", "The default is the run's own test set.")
    text = (
        f"{', '.join(select.PARTS)}: part of the data (default: test; with other data, all of it)"
    )
    group.add_argument("--part", choices=select.PARTS, metavar="PART", help=text)
    text = f"{', '.join(data.NAMES)}, or a path to custom data: classes are matched by name, and"
    text += " images are fitted to the network"
    group.add_argument("--data", type=data_source, metavar="DATA", help=text)
    text = "first, all: images to take from files that contain several, in the data given by --data"
    group.add_argument("--frames", choices=data.own.FRAMES, metavar="FRAMES", help=text)
    text = "leave out files in the data given by --data that cannot be used"
    group.add_argument("--skip-bad", action="store_true", help=text)
    text = "auto, yes or no: swap light and dark in the data given by --data; auto: if that matches"
    text += " the training images (default: auto; without a value: yes)"
    keywords = {"choices": CHOICES, "nargs": "?", "const": "yes", "metavar": "HOW"}
    group.add_argument("--invert", help=text, **keywords)
    text = "folder to search first for the data files"
    group.add_argument("--data-dir", metavar="FOLDER", help=text)
    group = parser.add_argument_group("work")
    text = "report how often the correct class is among the K highest scores (default: 5 if there"
    text += f" are at least {MANY} classes)"
    group.add_argument("--top", type=number(int, 1), metavar="K", help=text)
    text, size = "images per batch (default: %(default)s)", EVALUATION_BATCH
    group.add_argument("--batch-size", type=number(int, 1), default=size, metavar="N", help=text)
    add_device(group)
    text = "folder for the results; replaces an earlier evaluation of the same images"
    text += " (default: RUN/evaluation; with other --data or --part, RUN/evaluation-NAME; of a"
    text += " file, FILE-evaluation beside it)"
    group.add_argument("--out", metavar="FOLDER", help=text)
    group.add_argument("--quiet", action="store_true", help="print only the result")
    return parser


if __name__ == "__main__":
    sys.exit(start(main, together=True))
