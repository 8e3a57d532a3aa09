"""Repeat a training run with several seeds, each in its own folder, and report the spread."""

import json
import shutil
from functools import partial
from pathlib import Path

from minicaps import ranks
from minicaps.cli.command import usage
from minicaps.cli.sharing import Job, share
from minicaps.errors import escaped
from minicaps.runs import checkpoint
from minicaps.runs.configuration import options_of
from minicaps.storage import check_unused, locked, results_folder, write_json
from minicaps.train.options import resumed
from minicaps.train.summary import spread


def begin(session, options):
    """Train runs with consecutive seeds, using a subfolder seed-K for each seed K."""
    folder = Path(options.run.out)
    with usage():
        ranks.by_root(_prepare, folder, options)
    _runs(session, folder, options, {})


def _prepare(folder, options):
    check_unused(folder)
    results_folder(folder)
    with locked(folder):
        check_unused(folder)  # another command may have begun since
        _write_config(folder, options)


def is_repeated(folder):
    """Return whether a folder was created by the function `begin`."""
    try:
        return bool(_options(folder)["seeds"])
    except (OSError, ValueError, TypeError, LookupError):
        return False


def go_on(session, folder, given):
    """Finish the runs that `begin` left incomplete; a larger value of --seeds adds more runs.

    Several processes may do this at the same time, also while `begin` is training: a run belongs to
    the process that begins it.
    """
    folder = Path(folder)
    with usage():
        options = resumed(folder / "config.json", _options(folder), given)
    ranks.by_root(_write_config, folder, options)
    _runs(session, folder, options, given)


def _options(folder):
    options = json.loads(Path(folder, "config.json").read_text())["options"]
    saved = sorted(Path(folder).glob("seed-*/last.npz"))
    older, auto = "multi_label" not in options, options.get("size") == "auto"
    if saved and (older or auto):
        _, meta = checkpoint.load(saved[0], groups=())
        first = options_of(meta)
        if older:
            options |= {"multi_label": first["multi_label"]}
        if auto:  # another version may choose another size
            options |= {"size": first["size"]}
    return options


def _write_config(folder, options):
    write_json(folder / "config.json", {"options": options.to_dict()})


def _runs(session, folder, options, given):
    """Train all runs, together with other processes; report the spread of their results."""
    first, count = options.run.seed, options.run.seeds
    folders = {seed: folder / f"seed-{seed}" for seed in range(first, first + count)}
    jobs = []
    for seed, own in folders.items():
        one = options.replace(seed=seed, seeds=None, out=str(own), resume=None)
        heading = f"Seed {seed} ({seed - first + 1} of {count})"
        done, work = partial(_is_done, own, one), partial(_one, session, own, one, given)
        jobs.append(Job(f"seed {seed}", heading, folder / f"seed-{seed}.lock", done, work))
    with session.stop.listening():
        share(session.name, jobs, session.stop, options.run.quiet)
    summary = spread([_summary(own) for own in folders.values()], session.command)
    ranks.by_root(write_json, folder / "summary.json", summary)
    found = summary["test_accuracy"]
    print(
        f"Test accuracy over {count} seeds: mean {found['mean']:.2%}, standard deviation"
        f" {found['standard_deviation']:.2%}, range {found['min']:.2%} to {found['max']:.2%}."
    )
    print(f"Results: {escaped(folder)}/ (summary.json and a folder for each seed)")


def _summary(folder):
    return json.loads((folder / "summary.json").read_text())


def _is_done(folder, options):
    """Return whether the run in a folder has been trained as the options ask."""
    wanted = options.optimization
    asked = {"epochs": wanted.epochs, "patience": wanted.patience}
    if wanted.epochs is None:  # chosen by the data, as it was then
        del asked["epochs"]
    try:
        known = _summary(folder)["options"]
        trained = all(known[key] == value for key, value in asked.items())
        return trained and (folder / "last.npz").exists()
    except (OSError, ValueError, TypeError, LookupError):  # unfinished or damaged
        return False


def _one(session, folder, options, given):
    """Train or resume the run with one seed."""
    if (folder / "last.npz").exists():
        given = {k: v for k, v in given.items() if k not in ("seeds", "resume")}
        session.go_on(folder, given)
        return
    if (folder / "config.json").exists():  # killed before anything was saved
        shutil.rmtree(folder)
    session.begin(options)
