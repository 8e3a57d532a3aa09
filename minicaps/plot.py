"""`python -m minicaps.plot`: draw figures of a run, and of how its network sees an image."""

import argparse
import csv
import sys
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from minicaps import plotting
from minicaps.backend import choose_device
from minicaps.cli.command import (
    WrongUsage,
    add_device,
    fail,
    guarded,
    number,
    parser_for_run,
    start,
)
from minicaps.data.arguments import data_source
from minicaps.errors import DataError
from minicaps.evaluate import metrics, select
from minicaps.models import inspection
from minicaps.plotting.redrawing import draw_reconstructions
from minicaps.runs.inference import classify
from minicaps.runs.run import open_run
from minicaps.storage import results_folder

NAME = "minicaps.plot"
OFFSETS = np.linspace(-0.25, 0.25, 11)  # Sabour et al. 2017, figure 4
ABOUT = """\
Draw figures of a run: all that its network supports, or only those named.

  curves           loss and error by epoch
  reconstructions  images of up to 20 classes, and their reconstructions
  confusion        how often each class was taken for each other class
  couplings        where in an image the parts that vote for a class lie
  sweeps           reconstructions as each number of a capsule is varied
  kernels          kernels of the first convolution
"""
EXAMPLES = """examples (the first line creates a run in about a minute):
  python -m minicaps.train --out runs/first
  python -m minicaps.plot runs/first
  python -m minicaps.plot runs/first sweeps couplings --class 7
  python -m minicaps.plot runs/first couplings --index 12 --out figures
"""


def main(arguments=None):
    """Run the command and return the exit code.

    The exit code is 0 on success, 1 on failure, 2 on usage errors, and 130 on Ctrl-C.
    """
    parser = _parser()
    options = parser.parse_intermixed_args(arguments)
    return guarded(NAME, partial(_run, parser, options))


def _parser():
    parser = parser_for_run(NAME, ABOUT, EXAMPLES)
    text = f"{', '.join(FIGURES)} (default: all)"
    parser.add_argument("what", metavar="WHAT", nargs="*", type=_figure, help=text)
    group = parser.add_argument_group("image for couplings and sweeps")
    which = group.add_mutually_exclusive_group()
    text = "test image with this index (default: the first that is not blank)"
    which.add_argument("--index", metavar="N", type=number(int, 0), help=text)
    text = "first test image of this class that is not blank"
    which.add_argument("--class", metavar="NAME", dest="class_name", help=text)
    text = "data other than the run's: a name or a path"
    group.add_argument("--data", metavar="DATA", type=data_source, help=text)
    text = "folder to search first for the data files"
    group.add_argument("--data-dir", metavar="FOLDER", help=text)
    group = parser.add_argument_group("where to compute and write")
    add_device(group)
    text = "folder for the figures; replaces earlier ones (default: RUN/figures; of a file,"
    text += " FILE-figures beside it)"
    group.add_argument("--out", metavar="FOLDER", type=Path, help=text)
    return parser


def _figure(text):
    if text not in FIGURES:
        choices = ", ".join(FIGURES)
        raise argparse.ArgumentTypeError(f"must be one of {choices}, not {text!r}")
    return text


def _run(parser, options):
    run = open_run(options.run, choose_device(options.device))
    missing = _missing(run)
    if refused := [what for what in options.what if what in missing]:
        parser.error(f"cannot draw {refused[0]}: {missing[refused[0]]}")
    shown, out = Shown(run, options), options.out or run.place_of("figures")
    results_folder(out)
    try:
        return _draw(shown, options.what, missing, out)
    except WrongUsage as error:
        parser.error(str(error))


def _missing(run):
    """Return the figures that cannot be drawn for a run, and the reason for each."""
    missing = {}
    if not (rows := run.companion("metrics.csv")).exists():
        missing["curves"] = f"there is no {rows}"
    if not inspection.has_decoder(run.model):
        missing |= dict.fromkeys(("reconstructions", "sweeps"), "this network has no decoder")
    if run.model.children_grid is None:
        missing["couplings"] = "this network has no capsules"
    if run.model.multi:
        missing["confusion"] = "this network is multi-label: use minicaps.evaluate"
    return missing


def _draw(shown, wanted, missing, out):
    """Draw the requested figures, or all available figures by default; return the exit code."""
    code = 0
    for what in dict.fromkeys(wanted or FIGURES):
        if what in missing:
            print(f"no {what}: {missing[what]}")
            continue
        path = out / f"{what}.png"
        try:
            FIGURES[what](shown, path)
            print(path)
        except NothingToShow as error:
            if wanted:
                code = fail(NAME, f"cannot draw {what}: {error}")
            else:
                print(f"no {what}: {error}")
        except DataError as error:  # other figures may not need the data
            code = fail(NAME, f"cannot draw {what}: {error}")
    return code


class NothingToShow(Exception):
    """A figure would be empty, for the reason given."""


class Shown:
    """A run, its test images, and the chosen image, each loaded on first use."""

    def __init__(self, run, options):
        self.run, self.options = run, options

    @cached_property
    def test(self):
        o = self.options
        return select.choose(self.run, source=o.data, folder=o.data_dir).split

    @cached_property
    def names(self):
        """Names of the classes as figures can draw them."""
        names, note = plotting.legible(self.run.model.class_names)
        if note:
            print(f"Note: {note}")
        return names

    @cached_property
    def index(self):
        """Index of the chosen test image."""
        name, names = self.options.class_name, self.run.model.class_names
        if name is None:
            index = self.options.index
            if index is None:
                return inspection.first_clear(self.test, np.arange(len(self.test)))
            if index >= len(self.test):
                raise WrongUsage(
                    f"--index {index} is too large: the last one is {len(self.test) - 1}"
                )
            return index
        if name not in names:
            raise WrongUsage(f"unknown --class {name}: choose from {', '.join(names)}")
        labels, k = self.test.labels, names.index(name)
        found = np.flatnonzero(labels[:, k] if self.test.multi else labels == k)
        if not found.size:
            raise DataError(f"there is no test image of class {name}: choose another class")
        return inspection.first_clear(self.test, found)

    @property
    def picture(self):
        return self.test.take(np.array([self.index])).images[0]

    @property
    def label(self):
        """Class of the image, or the highest-scoring class of a multi-label image."""
        if not self.test.multi:
            return int(self.test.labels[self.index])
        present = self.test.labels[self.index].astype(bool)
        return next((int(k) for k in self.view.ranking if present[k]), self.view.answer)

    @cached_property
    def view(self):
        return inspection.view(self.run.model, self.picture)


def _curves(shown, path):
    rows = shown.run.companion("metrics.csv")
    try:
        with open(rows, newline="") as file:
            history = [
                {key: float(value) for key, value in row.items()} for row in csv.DictReader(file)
            ]
        plotting.curves(history, path)
    except (ValueError, TypeError, KeyError, IndexError, csv.Error) as error:
        raise DataError(f"{rows} is damaged: {error}") from error


def _reconstructions(shown, path):
    if reason := draw_reconstructions(shown.run.model, shown.test, shown.names, path):
        raise NothingToShow(reason)


def _confusion(shown, path):
    run, names = shown.run, shown.names
    if shown.test.multi:
        raise DataError("the data are multi-label: use minicaps.evaluate")
    if len(np.unique(shown.test.labels)) == 1:
        raise NothingToShow("all test images have the same class")
    answers = classify(run.model, shown.test, quiet=False, path=run.path).argmax(axis=1)
    counts = metrics.confusion_matrix(shown.test.labels, answers, len(names))
    plotting.confusion(counts, names, path)


def _couplings(shown, path):
    grid, names = shown.run.model.children_grid, shown.names
    view = shown.view
    parents = view.couplings[0].shape[1]
    first, second = view.ranking[:2]
    columns = {
        f"predicted: {names[first]}": first,
        f"second: {names[second]}": second,
    }
    if parents > len(names):
        columns["orphans: no class"] = len(names)
    columns = [
        (
            title,
            np.array([inspection.share_map(c, grid, parent) for c in view.couplings]),
            1 / parents,
        )
        for title, parent in columns.items()
    ]
    entropies = [inspection.entropy(c) for c in view.couplings]
    plotting.couplings(path, shown.picture, columns, entropies, np.log(parents), grid)


def _sweeps(shown, path):
    model, k, poses = shown.run.model, shown.label, shown.view.poses
    drawn, order, offsets = inspection.visible_sweep(model, poses, k, OFFSETS)
    if not len(order):
        raise NothingToShow(
            f"adding up to {offsets[-1]:g} to any number of the capsule changes no pixel of the"
            f" reconstruction by more than {inspection.VISIBLE}; train longer"
        )
    numbers = list(zip(order + 1, inspection.pose_spread(model, shown.test, k)[order], strict=True))
    left_out, alike = poses.shape[1] - len(order), inspection.alike(drawn)
    plotting.sweeps(path, drawn, offsets, shown.names[k], numbers, left_out, alike=alike)


def _kernels(shown, path):
    plotting.kernels(path, inspection.first_kernels(shown.run.model))


FIGURES = {
    "curves": _curves,
    "reconstructions": _reconstructions,
    "confusion": _confusion,
    "couplings": _couplings,
    "sweeps": _sweeps,
    "kernels": _kernels,
}


if __name__ == "__main__":
    sys.exit(start(main))
