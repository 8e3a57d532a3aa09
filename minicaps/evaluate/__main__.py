"""`python -m minicaps.evaluate RUN`: evaluate a trained network and show its errors."""

import json
import shlex
import sys
from functools import partial
from pathlib import Path

import minicaps
from minicaps import data
from minicaps.backend import choose_device
from minicaps.cli.command import WrongUsage, add_device, guarded, number, parser_for_run, start
from minicaps.data.arguments import data_source
from minicaps.evaluate import select
from minicaps.evaluate.report import Evaluation, report, report_classes
from minicaps.models.base import EVALUATION_BATCH
from minicaps.runs.inference import classify
from minicaps.runs.run import open_run
from minicaps.storage import results_folder, write_csv, write_json

NAME = "minicaps.evaluate"
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
    options = parser.parse_args(arguments)
    command = shlex.join(["python", "-m", NAME, *arguments])
    work = partial(_run, parser, options, command)
    return guarded(NAME, work, no_memory="try a smaller --batch-size")


def _run(parser, options, command):
    run = open_run(options.run, choose_device(options.device))
    try:
        chosen = select.choose(
            run,
            source=options.data,
            part=options.part,
            folder=options.data_dir,
            invert=options.invert,
        )
        folder = _claim(Path(options.out or run.folder / _name(run, chosen)), chosen.source)
    except WrongUsage as error:
        parser.error(str(error))
    if not options.quiet:
        _introduce(run, chosen)
    model, size, quiet = run.model, options.batch_size, options.quiet
    activations = classify(model, chosen.split, size, quiet=quiet, path=run.path)
    found = Evaluation(model, chosen.split, activations)
    result = found.measure()
    origin = {
        "checkpoint": str(run.path),
        "data": chosen.source,
        "part": chosen.part,
        "inverted": options.invert,
        "notes": chosen.notes,
        "device": run.device.name,
        "minicaps": minicaps.__version__,
        "command": command,
    }
    notes = _write(folder, found, origin | result)
    lines = report(result)
    print("\n".join(lines if options.quiet else lines + report_classes(result)))
    for note in () if options.quiet else notes:
        print(f"Note: {note}")
    print(f"Results: {folder}/ ({', '.join(sorted(path.name for path in folder.iterdir()))})")


def _introduce(run, chosen):
    size = run.model.number_of_parameters()
    print(f"Run: {run.path} ({run.options.model.name}, {size:,} parameters)")
    print(f"Data: {chosen.source}, {len(chosen.split):,} images ({chosen.part})")
    for note in chosen.notes:
        print(f"Note: {note}")


# ---- writing


def _name(run, chosen):
    """Name the folder for results so that those of the run's own test set are not replaced."""
    words = ["evaluation"]
    if chosen.source != run.options.data.name:
        words.append(Path(chosen.source).name.removesuffix(".npz"))
    if chosen.part in ("validation", "train"):
        words.append(chosen.part)
    return "-".join(words)


def _claim(folder, source):
    """Create the results folder or reuse one from an earlier evaluation; reject other folders."""
    if source not in data.NAMES and _lies_in(folder.resolve(), Path(source).resolve()):
        raise WrongUsage(f"{folder} is inside the data folder: choose another --out")
    results_folder(folder)
    if any(folder.iterdir()) and not _is_ours(folder):
        raise WrongUsage(
            f"{folder} exists but was not created by an evaluation: choose another --out"
        )
    return folder


def _lies_in(folder, outer):
    return outer in (folder, *folder.parents)


def _is_ours(folder):
    """Return whether the folder contains the file that every evaluation writes first."""
    try:
        return "checkpoint" in json.loads((folder / "evaluation.json").read_text())
    except (OSError, ValueError, TypeError):
        return False


def _write(folder, found, result):
    """Write the metrics, the prediction for each image, and the figures; return notes on them."""
    write_json(folder / "evaluation.json", result)
    for name, table in found.tables(result).items():
        write_csv(folder / name, *table)
    return found.draw(result, folder)


# ---- options


def _parser():
    parser = parser_for_run(NAME, ABOUT, EXAMPLES)
    group = parser.add_argument_group("images", "The default is the run's own test set.")
    text = f"{', '.join(select.PARTS)}: part of the data (default: test; with --data, all of it)"
    group.add_argument("--part", choices=select.PARTS, metavar="PART", help=text)
    text = f"{', '.join(data.NAMES)}, or a path to custom data: classes are matched by name, and"
    text += " images are fitted to the network"
    group.add_argument("--data", type=data_source, metavar="DATA", help=text)
    text = "invert light and dark in the data given by --data"
    group.add_argument("--invert", action="store_true", help=text)
    text = "folder to search first for the data files"
    group.add_argument("--data-dir", metavar="FOLDER", help=text)
    group = parser.add_argument_group("work")
    text, size = "images per batch (default: %(default)s)", EVALUATION_BATCH
    group.add_argument("--batch-size", type=number(int, 1), default=size, metavar="N", help=text)
    add_device(group)
    text = "folder for the results; replaces an earlier evaluation"
    text += " (default: RUN/evaluation; with other --data or --part, RUN/evaluation-NAME)"
    group.add_argument("--out", metavar="FOLDER", help=text)
    group.add_argument("--quiet", action="store_true", help="print only the result")
    return parser


if __name__ == "__main__":
    sys.exit(start(main))
