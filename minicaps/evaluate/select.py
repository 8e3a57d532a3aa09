"""Select images for evaluation: the test set of a run, another part of its data, or other data."""

import json
import os
from dataclasses import asdict, dataclass, replace

import numpy as np

from minicaps import data
from minicaps.cli.command import WrongUsage, usage
from minicaps.data import Split, own
from minicaps.data.images import Target, background, fitted, sampled
from minicaps.data.ink import drawn, swapped
from minicaps.data.own.files import some_of
from minicaps.data.stored import Stored, joined
from minicaps.errors import DataError
from minicaps.runs.run import Run, dataset

PARTS = ("test", "validation", "train")


@dataclass(frozen=True, eq=False)
class Samples:
    """Images that are prepared for a network and identified by split.names.

    source: name or path of the data. part: one of PARTS, or "all". notes: messages to the user.
    inverted: whether light and dark are swapped.
    """

    split: Split
    source: str
    part: str
    notes: tuple[str, ...] = ()
    inverted: bool = False


def choose(
    run: Run,
    *,
    source=None,
    part=None,
    folder=None,
    invert=None,
    frames=None,
    skip_bad=False,
) -> Samples:
    """Return the images from one part of the run's own data or from another source.

    source: name of a data set, or a path; by default, the data that the run was trained on. part:
    one of PARTS; by default, "test" for the run's own data and all images of another source.
    folder: folder to search first for the files of a named data set. invert: whether to invert
    light and dark in another source; None or "auto" does so if that matches the training images.
    frames, skip_bad: how to read another source, see `minicaps.data.own.Reading`.

    Raises `WrongUsage` if the arguments contradict each other, and `DataError` if the data cannot
    be used.
    """
    if folder is not None and (source or run.options.data.name) not in data.download.SOURCES:
        raise WrongUsage(
            f"--data-dir has no effect on {source or run.options.data.name}: leave it out"
        )
    reading = own.Reading(frames, run.model.multi, skip_bad)
    if source is not None and not _same(source, run.options.data.name):
        return _of_other(run, source, part, folder, invert, reading)
    flags = own.Reading(frames, skip_bad=skip_bad).changed()
    if flags := [*flags, *["--invert"] * (invert is not None)]:
        raise WrongUsage(f"{flags[0]} applies only to data other than the run's own: leave it out")
    found = _of_run(run, part or "test", folder)
    return replace(found, inverted=run.options.data.invert == "yes")


def _same(source, trained_on):
    """Return whether two names or paths refer to the same data."""
    if source == trained_on or not {source, trained_on}.isdisjoint(data.NAMES):
        return source == trained_on
    return os.path.exists(trained_on) and os.path.samefile(source, trained_on)


# ---- the data of the run


def _of_run(run, part, folder):
    source = run.options.data.name
    theirs = source not in data.NAMES  # custom data
    if source == own.from_memory.NAME:
        raise DataError(
            f"{run.folder} was trained on arrays in memory, which are not stored: name other"
            " data with --data, or call minicaps.evaluate.evaluate(model, images, labels)"
        )
    if theirs and not os.path.exists(source):
        raise DataError(
            f"{source} no longer exists, but this run was trained on it: restore it, or give its"
            f" new path with --data, and --part {part}"
        )
    composed = run.options.data.compose
    if theirs and not composed and (names := _split_names(run)) is not None:
        reading = replace(run.options.data.reading, multi_label=run.model.multi)
        found = own.read(source, _target(run), reading)
        if run.options.data.invert == "yes":
            found = _swapped(found, "all images are inverted")
        return _by_names(run, source, part, names, found)
    try:
        whole = dataset(run, folder, test_only=part == "test")
        split = _cut(run, whole, part)
    except (ValueError, TypeError) as error:  # the images have changed, or options were edited
        raise DataError(f"{source} cannot be split as it was for {run.path}: {error}") from error
    split = _not_empty(split, run)
    if whole.class_names != run.model.class_names or split.shape != run.input_shape:
        raise DataError(
            f"{source} has the classes {', '.join(whole.class_names)} and images of shape"
            f" {split.shape}, but {run.path} was trained on the classes"
            f" {', '.join(run.model.class_names)} and images of shape {run.input_shape}: restore"
            " the original data"
        )
    if composed and theirs and (names := _split_names(run)) is not None:
        if names[part] != split.names.tolist():
            raise DataError(
                f"{source} does not hold the images listed in {run.folder / 'split.json'}: restore"
                " them"
            )
        return Samples(split, source, part, whole.notes)
    unsure = f"{run.path} has no split.json: the run may have been trained on some of these images"
    return Samples(split, source, part, (*whole.notes, unsure) if theirs else whole.notes)


def _cut(run, whole, part):
    """Split a data set as for training and return one part.

    Unnamed images are named by their index.
    """
    if run.options.data.compose:
        composed = _part(run, whole, part)
        if composed and isinstance(composed.pixels, Stored):
            return composed  # every batch is composed when it is needed
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
    """Use indices as names for images without the names of files, with `start` before them."""
    if split.names is not None and (not start or split.names.dtype.kind == "U"):
        return split
    numbers = np.arange(len(split))
    return replace(split, names=np.char.add(start, numbers.astype(str)) if start else numbers)


def _not_empty(pictures, run):
    if not pictures:
        raise WrongUsage(f"{run.path} was trained without a validation set: choose another --part")
    return pictures


def _split_names(run):
    """Return the image names in each part of custom data, or None if the run did not save them."""
    path = run.companion("split.json")
    try:
        names = json.loads(path.read_text())
        return {"sha256": {}, **names, **{part: list(names[part]) for part in PARTS}}
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path}, which lists the images of each part, is damaged ({error!r}): remove it to"
            " split the images again by the seed"
        ) from error


def _by_names(run, source, part, names, found):
    """Return the images that split.json lists for a part; images added later are ignored."""
    origin = {p: p if p in found.parts else next(iter(found.parts)) for p in PARTS}
    pool, notes, wanted = found.parts[origin[part]], found.notes, names[part]
    known = [name for p in PARTS if origin[p] == origin[part] for name in names[p]]
    here = {name: k for k, name in enumerate(pool.names.tolist())}
    if gone := [str(name) for name in wanted if name not in here]:
        raise DataError(
            f"{len(gone):,} of the {len(wanted):,} {part} images listed in"
            f" {run.folder / 'split.json'} are not in {source} ({some_of(gone)}): restore"
            " them, or evaluate other data with --data"
        )
    if (new := len(here.keys() - set(known))) and run.options.data.limit is None:
        notes = (
            *notes,
            f"images added to {source} since training are ignored: {new}",
        )
    split = pool.take([here[name] for name in _not_empty(wanted, run)])
    if (known := names["sha256"].get(part)) and known != split.sha256():  # older runs: none
        notes = (*notes, f"images of {source}, or their classes, have changed since training")
    return Samples(split, source, part, tuple(notes))


# ---- other data


def _target(run, invert=False):
    """Return the properties of the network's images. invert: whether they will be inverted."""
    channels, *size = run.input_shape
    known = run.model.preprocessing
    older, fill = known.fill is not None, None if known.fill is None else abs(known.fill - invert)
    return Target(tuple(size), channels, run.model.class_names, fill, known.scale, older)


def _of_other(run, source, part, folder, invert, reading):
    target = _target(run, invert is True)
    if source in data.NAMES:
        how = asdict(replace(reading, multi_label=False))
        how["limit"] = 1 if part == "test" else None  # skip generating unused training images
        with usage():
            whole = data.load(source, folder=folder, seed=run.options.run.seed, **how)
        parts = {p: _for_network(getattr(whole, p), whole, target) for p in ("train", "test")}
        found = own.Found(parts, whole.class_names)
    else:
        found = own.read(source, target, reading)
    if inverted := _must_invert(run, found.parts) if invert in (None, "auto") else invert:
        text = "the images are inverted to match the training images (--invert no keeps them)"
        found = _swapped(found, *[] if invert is True else [text])
    return replace(_divided(run, source, part, found), inverted=inverted)


def _swapped(found, *notes):
    """Invert all images of `found`, and add notes."""
    parts = {name: swapped(split) for name, split in found.parts.items()}
    return replace(found, parts=parts, notes=(*found.notes, *notes))


def _divided(run, source, part, found):
    """Return one part of the data, or all images."""
    parts = found.parts
    if "all" in parts:
        return _of_undivided(run, source, part, found)
    names = _split_names(run)
    if part is not None and names is not None and _holds(found, names[part]):
        return _by_names(run, source, part, names, found)  # a copy of the run's own data
    if part not in (None, *parts):
        there = " and ".join(parts)
        raise WrongUsage(f"{source} has the parts {there}, not {part}: choose one of them")
    if part is None:
        split = _joined([_named(split, f"{name}/") for name, split in parts.items()])
    else:
        split = _named(parts[part])
    return Samples(split, source, part or "all", found.notes)


def _must_invert(run, parts):
    """Return whether these splits must be inverted, as a whole, to match the training images.

    If the training images were inverted, they are, unless they are light on dark. Otherwise, only
    drawings are, if their background is light and that of the training images dark, or vice versa.
    """
    known = run.model.preprocessing
    if known.inverted is None:  # an older checkpoint
        return False
    images = joined([sampled(split.images) for split in parts.values()])
    return known.differs_from(background(images)) and (known.inverted or drawn(images))


def _holds(found, names):
    """Return whether divided data contains files with all these names."""
    splits = [split for split in found.parts.values() if split.names is not None]
    here = {name for split in splits for name in split.names.tolist()}
    return bool(names) and all(isinstance(name, str) and name in here for name in names)


def _joined(parts):
    images = joined([part.images for part in parts])
    others = {f: np.concatenate([getattr(p, f) for p in parts]) for f in ("labels", "names")}
    return Split(images, **others)


def _for_network(split, whole, target):
    """Convert the labels and images of a named data set to the form that the network expects."""
    numbers = np.array(target.numbers(whole.class_names, whole.name))
    return fitted(replace(split, labels=numbers[split.labels]), target)


def _of_undivided(run, source, part, found):
    """Return all images of a folder or file, or only one part if `part` is given.

    A part can be selected only if the source is a copy of the run's own data.
    """
    names, whole, notes = _split_names(run), found.parts["all"], found.notes
    if part is not None:
        if names is None:
            raise WrongUsage(f"{source} is not divided into parts: leave --part out")
        return _by_names(run, source, part, names, found)
    if names is not None and set(whole.names.tolist()) == {n for p in PARTS for n in names[p]}:
        notes = (
            *notes,
            "the images have the same names as the run's own data: if they are the same images, use"
            " --part test",
        )
    return Samples(whole, source, "all", tuple(notes))
