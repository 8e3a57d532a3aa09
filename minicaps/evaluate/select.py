"""The pictures that a run is evaluated on: its own test data, another part of it, or other data."""

import json
import os
from dataclasses import dataclass, replace

import numpy as np

from minicaps import data
from minicaps.cli.command import WrongUsage
from minicaps.data import Split, own
from minicaps.data.images import Target, fitted
from minicaps.errors import DataError
from minicaps.runs.run import Run, dataset

PARTS = ("test", "validation", "train")


@dataclass(frozen=True, eq=False)
class Samples:
    """Pictures as a network takes them. source: the name or the path of their data; part: which of
    it, one of PARTS or "all"; notes: for the user. split.names tells pictures apart."""

    split: Split
    source: str
    part: str
    notes: tuple[str, ...] = ()


def choose(run: Run, *, source=None, part=None, folder=None, invert=False) -> Samples:
    """The pictures of `run` in `part`, by default those for testing; or all of another `source`.

    source: the name of a data set, or a path; None, or what the run was trained on, is its own.
    folder: searched first for the files of a named data set. invert: light is dark in a source.

    Raises WrongUsage for what does not fit together, `DataError` for data that cannot be used.
    """
    if folder is not None and (source or run.options.data.name) not in data.download.SOURCES:
        raise WrongUsage(f"{source or run.options.data.name} is not searched: leave --data-dir out")
    if source is not None and not _same(source, run.options.data.name):
        return _of_other(run, source, part, folder, invert)
    if invert:
        raise WrongUsage(
            "the run's own pictures are as it learned them: --invert is for another --data"
        )
    return _of_run(run, part or "test", folder)


def _same(source, trained_on):
    """Whether two names or paths of data are the same."""
    if source == trained_on or not {source, trained_on}.isdisjoint(data.NAMES):
        return source == trained_on
    return os.path.exists(trained_on) and os.path.samefile(source, trained_on)


# ---- the data of the run


def _of_run(run, part, folder):
    source = run.options.data.name
    theirs = source not in data.NAMES  # the user's own pictures
    if source == own.from_memory.NAME:
        raise DataError(
            f"{run.folder} was trained on arrays in memory, which it does not keep: name data by"
            " --data, or use minicaps.evaluate.evaluate(model, images, labels)"
        )
    if theirs and not os.path.exists(source):
        raise DataError(
            f"{source} is gone, on which this run was trained: put it back, or say by --data where"
            f" it is now, with --part {part}"
        )
    composed = run.options.data.compose
    if theirs and not composed and (names := _split_names(run)) is not None:
        parts, _, notes = own.read(source, _target(run))
        return _by_names(run, source, part, names, parts, notes)
    try:
        whole = dataset(run, folder, test_only=part == "test")
        split = _cut(run, whole, part)
    except (ValueError, TypeError) as error:  # other pictures by now, or options edited by hand
        raise DataError(f"{source} cannot be split as for {run.path}: {error}") from error
    split = _not_empty(split, run)
    if whole.class_names != run.model.class_names or split.images.shape[1:] != run.input_shape:
        raise DataError(
            f"{source} has the classes {', '.join(whole.class_names)} in pictures of shape"
            f" {split.images.shape[1:]}, but {run.path} was trained on"
            f" {', '.join(run.model.class_names)} in {run.input_shape}: it is not the same data"
        )
    if composed and theirs and (names := _split_names(run)) is not None:
        if names[part] != split.names.tolist():
            raise DataError(
                f"{source} has other pictures than {run.folder / 'split.json'} names: put them back"
            )
        return Samples(split, source, part, whole.notes)
    unsure = (
        f"{run.folder} has no split.json: that the run has not learned these pictures is a guess"
    )
    return Samples(split, source, part, (*whole.notes, unsure) if theirs else whole.notes)


def _cut(run, whole, part):
    """A part of a data set, split as for training; its pictures are told apart by numbers where
    they have no names."""
    if run.options.data.compose:
        composed = _part(run, whole, part)
        return composed and _named(composed.take(np.arange(len(composed))))
    if part == "test":
        return _named(whole.test)
    return _part(run, replace(whole, train=_named(whole.train)), part)


def _part(run, whole, part):
    if part == "test":
        return whole.test
    training, validation = run.options.data.split(whole, run.options.run.seed)
    return training if part == "train" else validation


def _named(split, start=""):
    """A split with the numbers of its pictures as names, or with `start` and the numbers."""
    if split.names is not None and not start:
        return split
    numbers = np.arange(len(split))
    return replace(split, names=np.char.add(start, numbers.astype(str)) if start else numbers)


def _not_empty(pictures, run):
    if not pictures:
        raise WrongUsage(f"{run.path} was trained without validation: there is no such part")
    return pictures


def _split_names(run):
    """The names of the user's pictures in each part, as training wrote them; None if it is gone."""
    path = run.folder / "split.json"
    try:
        names = json.loads(path.read_text())
        return {"sha256": {}, **names, **{part: list(names[part]) for part in PARTS}}
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path}, which says what the run learned, is damaged ({error!r}): remove it, and the"
            " pictures are split anew by the seed"
        ) from error


def _by_names(run, source, part, names, parts, notes):
    """The pictures of a part that split.json names, whatever else there is by now."""
    wanted, known, pool = names[part], [name for p in PARTS for name in names[p]], parts[0]
    if len(parts) == 2 and part == "test":
        known, pool = wanted, parts[1]
    here = {name: k for k, name in enumerate(pool.names.tolist())}
    if gone := [str(name) for name in wanted if name not in here]:
        raise DataError(
            f"{len(gone)} of the {len(wanted)} {part} pictures that {run.folder / 'split.json'}"
            f" names are not in {source} ({', '.join(gone[:5])}{', …' if gone[5:] else ''}): put"
            " them back, or evaluate all pictures of another --data"
        )
    if (new := len(here.keys() - set(known))) and run.options.data.limit is None:
        notes = (
            *notes,
            f"{source} has pictures that are new since the training, and not counted: {new}",
        )
    split = pool.take([here[name] for name in _not_empty(wanted, run)])
    if names["sha256"].get(part, split.sha256()) != split.sha256():  # older runs have none
        notes = (*notes, f"pictures of {source} have changed since the training, or their class")
    return Samples(split, source, part, tuple(notes))


# ---- other data


def _target(run, invert=False):
    channels, *size = run.input_shape
    return Target(tuple(size), channels, invert, run.model.class_names)


def _of_other(run, source, part, folder, invert):
    target = _target(run, invert)
    if source in data.NAMES:
        limit = 1 if part == "test" else None  # other training pictures need not be drawn
        whole = data.load(source, folder=folder, seed=run.options.run.seed, limit=limit)
        parts, notes = [_for_network(p, whole, target) for p in (whole.train, whole.test)], ()
    else:
        parts, _, notes = own.read(source, target)
    if len(parts) == 1:
        return _of_undivided(run, source, part, parts[0], notes)
    if part not in (None, "train", "test"):
        raise WrongUsage(f"{source} has the parts train and test, not {part}")
    train, test = parts
    if part is None:
        train, test = _named(train, "train/"), _named(test, "test/")
        fields = ("images", "labels", "names")
        split = Split(**{f: np.concatenate([getattr(p, f) for p in (train, test)]) for f in fields})
    else:
        split = _named(train if part == "train" else test)
    return Samples(split, source, part or "all", tuple(notes))


def _for_network(split, whole, target):
    """A split of a named data set, numbered and fitted as the network is used to."""
    numbers = np.array(target.numbers(whole.class_names, whole.name))
    return fitted(replace(split, labels=numbers[split.labels]), target)


def _of_undivided(run, source, part, whole, notes):
    """All pictures of a folder or a file; or a part, where they are those of the run, moved."""
    names = _split_names(run)
    if part is not None:
        if names is None:
            raise WrongUsage(f"{source} is not divided: leave --part out")
        return _by_names(run, source, part, names, [whole], notes)
    if names is not None and set(whole.names.tolist()) == {n for p in PARTS for n in names[p]}:
        notes = (
            *notes,
            "the pictures are called like those that the run learned: if they are the same, use"
            " --part test",
        )
    return Samples(whole, source, "all", tuple(notes))
