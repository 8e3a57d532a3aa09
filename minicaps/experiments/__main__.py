"""`python -m minicaps.experiments NAME`: reproduce a published experiment."""

import argparse
import importlib
import pkgutil
import sys
from functools import partial
from pathlib import Path

from minicaps import experiments, ranks
from minicaps.backend import choose_device
from minicaps.cli.command import add_device, command_line, fail, guarded, number, start
from minicaps.cli.sharing import share
from minicaps.cli.signals import StopRequest
from minicaps.data import download
from minicaps.errors import DataError, Interrupted
from minicaps.experiments.equal import DECIDES
from minicaps.experiments.lab import NAME, QUICK, Lab
from minicaps.experiments.results import Results, headlines, print_markdown, print_report

FRAMEWORK = {
    "__main__", "attacks", "couplings", "equal", "lab", "results", "settings", "significance",
}  # fmt: skip
OUT = "lessons/results/experiments"
NAMES = [m.name for m in pkgutil.iter_modules(experiments.__path__) if m.name not in FRAMEWORK]


def main(arguments=None):
    """Run the command and return its exit status.

    The status is 0 on success, 1 on failure, 2 on incorrect usage, and 128 + n on signal n.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.name is None:
        if options.quick or options.seeds or options.no_training:
            parser.error("--quick, --seeds and --no-training require the NAME of an experiment")
        return guarded(NAME, partial(_list, options))
    return guarded(NAME, partial(_run, options, command_line(NAME, *arguments)))


def _list(options):
    for name in NAMES:
        print(f"{name:12} {_module(name).TITLE}")
    if rows := headlines(options.out or OUT):
        print()
        print_markdown(rows)


def _module(name):
    return importlib.import_module(f"{experiments.__name__}.{name}")


def _run(options, command):
    download.roots(options.data_dir)  # reports a missing data folder before any work
    module, stop = _module(options.name), StopRequest()
    runs = Path("runs", "experiments", options.name + ("-quick" if options.quick else ""))
    folder = Path(options.out or (runs if options.quick else OUT))
    results = Results(folder, options.name, module.parts(options.quick))
    device, decided = choose_device(options.device), partial(results.figures, seed=DECIDES)
    lab = Lab(runs, options.quick, device, options.data_dir, stop, decided)
    seeds = range(options.seeds or (1 if options.quick else module.SEEDS))
    ranks.by_root(results.make_folders)
    _introduce(options, module, results, seeds)
    try:
        with stop.listening():
            lacking = _measure(module, lab, results, seeds, options.no_training)
            made_by = command.replace(" --no-training", "")
            untrained = options.no_training
            ranks.by_root(_report, made_by, module, lab, results, seeds, untrained)
    except Interrupted:
        text = f"stopped; finished work is kept. Resume with:\n  {command}"
        return fail(NAME, text, 128 + max(ranks.gather(stop.signal or 0)))
    print(f"\nWrote {folder / options.name}.json" + ("" if options.no_training else " and .png"))
    if lacking:
        return fail(NAME, f"the results above are incomplete: {lacking}")


def _introduce(options, module, results, seeds):
    print(f"{options.name}: {module.TITLE}")
    if there := sum(len(results.read(seed)) for seed in seeds):
        count = len(results.parts) * len(seeds)
        text = f"{there} of {count} networks already have results in {results.folder}"
        print(text + ("" if options.quick else "; to train all of them, choose another --out"))


def _report(command, module, lab, results, seeds, untrained):
    """Print and write the results of all parts and, unless `untrained` is true, draw the figure."""
    report = results.report(seeds, module, command, lab.quick)
    print()
    print_report(report)
    if lab.quick:
        print(f"\n{QUICK}")
    if not untrained:
        # May train: results copied from another machine come without their networks
        module.draw(results.gather(seeds), results.folder / f"{results.name}.png", lab)


def _measure(module, lab, results, seeds, untrained):
    """Measure all parts, and return the DataError that stopped the measurement, if any.

    The parts whose data may be missing come last. If nothing was measured, the error is raised.

    untrained: measure only the parts that need no training.
    """
    parts = results.parts
    if untrained:
        parts = {name: own for name, own in parts.items() if own.get("epochs") == 0}
    jobs = [
        results.job(name, seed, partial(module.measure, lab, name, settings, seed))
        for name, settings in parts.items()
        for seed in seeds
    ]
    try:
        share(NAME, jobs, lab.stop)
    except DataError as error:
        if not any(results.read(seed) for seed in seeds):
            raise
        return error


def _parser():
    parser = argparse.ArgumentParser(
        prog=f"python -m {NAME}",
        description="Reproduce a published experiment: train its networks, measure them, and"
        " print the published results beside ours. Without a name, list the experiments and the"
        " results that exist. Several processes share the networks if the same command is started"
        " in several terminals, on several machines with the same folder, or by mpiexec -n RANKS."
        " No network is trained twice. A process that finds nothing left to do waits for the"
        " others, in case one stops, and then prints the report; Ctrl-C ends the wait.",
        epilog="Example: python -m minicaps.experiments pairs --quick",
    )
    parser.add_argument("name", nargs="?", choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    what = parser.add_argument_group("what to do")
    what.add_argument("--quick", action="store_true", help="run a trial in under three minutes")
    what.add_argument(
        "--seeds",
        type=number(int, 1),
        metavar="N",
        help="number of seeds to run (default: 3, ablation 6; 1 with --quick)",
    )
    what.add_argument(
        "--no-training",
        action="store_true",
        help="report the results that exist, measure what needs no training, and draw no figure",
    )
    where = parser.add_argument_group("where")
    add_device(where)
    where.add_argument("--data-dir", metavar="FOLDER", help="folder to search for data first")
    where.add_argument(
        "--out", metavar="FOLDER",
        help=f"folder for the results (default: {OUT}, or with --quick"
        " runs/experiments/NAME-quick, which also holds the networks); existing results are reused",
    )  # fmt: skip
    return parser


if __name__ == "__main__":
    sys.exit(start(main, together=True))
