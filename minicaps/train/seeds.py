"""Repeat a training run with several seeds, each in its own folder, and report the spread."""

import json
import shutil
from pathlib import Path

from minicaps import ranks
from minicaps.cli.command import usage
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
        ranks.by_root(check_unused, folder)
    ranks.by_root(results_folder, folder)
    with ranks.held_by_root(locked(folder)):
        _runs(session, folder, options, {})


def is_repeated(folder):
    """Return whether a folder was created by the function `begin`."""
    try:
        return bool(_options(folder)["seeds"])
    except (OSError, ValueError, TypeError, LookupError):
        return False


def go_on(session, folder, given):
    """Finish the runs that `begin` left incomplete; a larger value of --seeds adds more runs."""
    folder = Path(folder)
    with ranks.held_by_root(locked(folder)):
        with usage():
            options = resumed(folder / "config.json", _options(folder), given)
        _runs(session, folder, options, given)


def _options(folder):
    options = json.loads(Path(folder, "config.json").read_text())["options"]
    saved = sorted(Path(folder).glob("seed-*/last.npz"))
    if saved and "multi_label" not in options:  # of an older version
        _, meta = checkpoint.load(saved[0], groups=())
        options |= {"multi_label": options_of(meta)["multi_label"]}
    return options


def _runs(session, folder, options, given):
    ranks.by_root(write_json, folder / "config.json", {"options": options.to_dict()})
    first, count = options.run.seed, options.run.seeds
    summaries = []
    for seed in range(first, first + count):
        if not options.run.quiet:
            print(f"Seed {seed} ({seed - first + 1} of {count})")
        own = folder / f"seed-{seed}"
        one = options.replace(seed=seed, seeds=None, out=str(own), resume=None)
        summaries.append(_one(session, own, one, given))
    summary = spread(summaries, session.command)
    ranks.by_root(write_json, folder / "summary.json", summary)
    found = summary["test_accuracy"]
    print(
        f"Test accuracy over {count} seeds: mean {found['mean']:.2%}, standard deviation"
        f" {found['standard_deviation']:.2%}, range {found['min']:.2%} to {found['max']:.2%}."
    )
    print(f"Results: {escaped(folder)}/ (summary.json and a folder for each seed)")


def _one(session, folder, options, given):
    """Return the summary of the run with one seed, training or resuming the run if necessary."""
    if not (folder / "last.npz").exists():
        if (folder / "config.json").exists():  # killed before anything was saved
            ranks.by_root(shutil.rmtree, folder)
        return session.begin(options)
    try:
        summary = json.loads((folder / "summary.json").read_text())
        wanted = options.optimization
        asked = {"epochs": wanted.epochs, "patience": wanted.patience}
        if wanted.epochs is None:  # chosen by the data, as it was then
            del asked["epochs"]
        if all(summary["options"][key] == value for key, value in asked.items()):
            return summary
    except (OSError, ValueError, TypeError, LookupError):  # unfinished or damaged
        pass
    return session.go_on(folder, {k: v for k, v in given.items() if k not in ("seeds", "resume")})
