"""`python -m minicaps.plot`: figures of a run, and of what its network does with a picture."""

import argparse
import csv
import sys
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from minicaps import data, insight, plotting, runs
from minicaps.backend import choose_device
from minicaps.command import data_source, fail, guarded, number, start
from minicaps.plotting import short

NAME = "minicaps.plot"
OFFSETS = np.linspace(-0.25, 0.25, 11)  # Sabour et al. 2017, figure 4
ABOUT = """\
Draw figures of a run, all that its network has or those that are named:

  curves           loss and error by epoch
  reconstructions  a test picture of each class, and what the decoder draws of it
  couplings        where the parts of a picture lie that vote for a class, by iteration
  sweeps           what the decoder draws when one number of a capsule is moved
  kernels          the kernels of the first convolution
"""
EXAMPLES = """examples (the first line makes a run, in a minute):
  python -m minicaps.train --out runs/first
  python -m minicaps.plot runs/first
  python -m minicaps.plot runs/first sweeps couplings --class 7
  python -m minicaps.plot runs/first couplings --index 12 --out figures
"""


class Unavailable(Exception):
    """A figure that this run has nothing for; the message says why."""


def main(arguments=None):
    """Run the command; return its exit code: 0 done, 1 a failure, 2 wrong usage, 130 Ctrl-C."""
    options = _parser().parse_args(arguments)
    return guarded(NAME, partial(_run, options))


def _parser():
    parser = argparse.ArgumentParser(
        prog=f"python -m {NAME}",
        description=ABOUT,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", metavar="RUN", type=Path, help="run folder, or one .npz of it")
    text = f"{', '.join(FIGURES)} (default: all)"
    parser.add_argument("what", metavar="WHAT", nargs="*", type=_figure, help=text)
    group = parser.add_argument_group("which picture couplings and sweeps show")
    which = group.add_mutually_exclusive_group()
    text = "the test picture of this index (default: 0)"
    which.add_argument("--index", metavar="N", type=number(int, 0), help=text)
    text = "the first test picture of this class"
    which.add_argument("--class", metavar="NAME", dest="class_name", help=text)
    text = "other data than the run's: a name, or a path"
    group.add_argument("--data", metavar="DATA", type=data_source, help=text)
    text = "folder searched first for the data files"
    group.add_argument("--data-dir", metavar="FOLDER", help=text)
    group = parser.add_argument_group("where to compute, where to write")
    choices = ["auto", "cpu", "gpu"]
    group.add_argument("--device", choices=choices, default="auto", help="default: auto")
    text = "folder of the figures (default: RUN/figures)"
    group.add_argument("--out", metavar="FOLDER", type=Path, help=text)
    return parser


def _figure(text):
    if text not in FIGURES:
        choices = ", ".join(FIGURES)
        raise argparse.ArgumentTypeError(f"must be one of {choices}, not {text!r}")
    return text


def _run(options):
    run = runs.open_run(options.run, choose_device(options.device))
    out = options.out or run.folder / "figures"
    out.mkdir(parents=True, exist_ok=True)
    shown, code = Shown(run, options), 0
    for what in dict.fromkeys(options.what or FIGURES):
        path = out / f"{what}.png"
        try:
            FIGURES[what](shown, path)
        except Unavailable as reason:
            if options.what:
                code = fail(NAME, f"cannot draw {what}: {reason}")
            else:
                print(f"no {what}: {reason}")
        except data.DataError as error:
            code = fail(NAME, f"cannot draw {what}: {error}")
        else:
            print(path)
    return code


class Shown:
    """The run, its test pictures, and the one that is chosen; read when they are needed."""

    def __init__(self, run, options):
        self.run, self.options = run, options

    @cached_property
    def data(self):
        read = runs.dataset(self.run, self.options.data, self.options.data_dir)
        there, wanted = read.test.images.shape[1:], self.run.input_shape
        if there != wanted:
            raise data.DataError(f"{read.name} has pictures {there}, the network takes {wanted}")
        if read.class_names != self.run.class_names:
            raise data.DataError(
                f"{read.name} has the classes {', '.join(read.class_names)}, the network knows"
                f" {', '.join(self.run.class_names)}"
            )
        return read

    @cached_property
    def index(self):
        """Of the chosen test picture."""
        name, test = self.options.class_name, self.data.test
        if name is None:
            index = self.options.index or 0
            if index >= len(test):
                raise data.DataError(f"--index is {index}, of {len(test)} test pictures")
            return index
        if name not in self.run.class_names:
            names = ", ".join(self.run.class_names)
            raise data.DataError(f"--class is {name!r}, the classes are {names}")
        found = np.flatnonzero(test.labels == self.run.class_names.index(name))
        if not found.size:
            raise data.DataError(f"there is no test picture of class {name!r}")
        return int(found[0])

    @property
    def picture(self):
        return self.data.test.images[self.index]

    @property
    def label(self):
        return int(self.data.test.labels[self.index])

    @cached_property
    def view(self):
        return insight.view(self.run.model, self.picture)


def _curves(shown, path):
    rows = shown.run.folder / "metrics.csv"
    if not rows.exists():
        raise Unavailable(f"there is no {rows}")
    try:
        with open(rows, newline="") as file:
            history = [
                {key: float(value) for key, value in row.items()} for row in csv.DictReader(file)
            ]
        plotting.curves(history, path)
    except (ValueError, TypeError, KeyError, IndexError, csv.Error) as error:
        raise data.DataError(f"{rows} is damaged: {error}") from error


def _reconstructions(shown, path):
    model = _with_decoder(shown)
    test, names = shown.data.test, shown.run.class_names
    chosen = test.take(np.unique(test.labels, return_index=True)[1])
    views = [insight.view(model, picture) for picture in chosen.images]
    drawn = [insight.reconstruction(model, view.poses, view.answer) for view in views]
    labels, answers = [names[k] for k in chosen.labels], [names[view.answer] for view in views]
    plotting.reconstructions(chosen.images, np.array(drawn), labels, answers, path)


def _with_decoder(shown):
    if not insight.has_decoder(shown.run.model):
        raise Unavailable("this network has no decoder")
    return shown.run.model


def _couplings(shown, path):
    grid, names = shown.run.model.children_grid, shown.run.class_names
    if grid is None:
        raise Unavailable("this network has no capsules")
    view = shown.view
    parents = view.couplings[0].shape[1]
    first, second = view.ranking[:2]
    columns = {f"answer: {short(names[first])}": first, f"second: {short(names[second])}": second}
    if parents > len(names):
        columns["orphans, for no class"] = len(names)
    columns = [
        (title, np.array([insight.share_map(c, grid, parent) for c in view.couplings]), 1 / parents)
        for title, parent in columns.items()
    ]
    entropies = [insight.entropy(c) for c in view.couplings]
    plotting.couplings(path, shown.picture, columns, entropies, np.log(parents), grid)


def _sweeps(shown, path):
    model = _with_decoder(shown)
    drawn = insight.sweep(model, shown.view.poses, shown.label, OFFSETS)
    plotting.sweeps(path, drawn, OFFSETS, shown.run.class_names[shown.label])


def _kernels(shown, path):
    plotting.kernels(path, insight.first_kernels(shown.run.model))


FIGURES = {
    "curves": _curves,
    "reconstructions": _reconstructions,
    "couplings": _couplings,
    "sweeps": _sweeps,
    "kernels": _kernels,
}


if __name__ == "__main__":
    sys.exit(start(main))
