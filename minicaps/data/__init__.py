"""Load built-in data sets by name and custom data by path.

`strokes` is drawn; `mnist` and `fashion-mnist` are read from files, which are downloaded if needed.
`load` returns a `Dataset`, and `minicaps.data.batches.batches` iterates over one of its splits. All
arrays are NumPy arrays; the trainer moves batches to its device. `python -m minicaps.data` lists,
fetches and shows the data sets.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from minicaps.data import download, ink, own
from minicaps.data import strokes as drawn
from minicaps.data.compose import compose as compose_pictures
from minicaps.data.dataset import Dataset, Split
from minicaps.data.images import Target, background, fitted, sides
from minicaps.errors import DataError

__all__ = ["NAMES", "DataError", "Dataset", "Split", "load"]

NAMES = ("strokes", *download.SOURCES)


def load(
    name: str,
    *,
    folder: str | Path | None = None,
    limit: int | None = None,
    seed: int = 0,
    size: int | Sequence[int] | str | None = None,
    compose: int | None = None,
    layout: str = "overlap",
    frames: str | None = None,
    multi_label: bool = False,
    skip_bad: bool = False,
    invert: bool | str = False,
    older: bool = False,
    whole: Callable | None = None,
) -> Dataset:
    """Load a built-in data set by name, or custom data by path.

    Parameters
    ----------
    name : a name from `NAMES`, or a path to custom data
        The formats are described in `minicaps.data.own.load`. A built-in data set takes precedence
        over a file with the same name, so write `./mnist` to load a file called `mnist`.
    folder : first folder to search for the files of `mnist` and `fashion-mnist`
        `download.roots` lists the folders searched after it.
    limit : number of training samples to keep
        The first samples are kept; custom data is sampled by class. The test split always keeps its
        full size, so test results remain comparable.
    seed : seed for drawing `strokes`, splitting custom data and composing images
        It has no effect on `mnist` and `fashion-mnist` themselves.
    size : (height, width), or N for both, that all images are resized to
        The aspect ratio is kept, and the rest of the image has the color of its border. "auto"
        chooses a size for custom data; see `minicaps.data.own.sizing`.
    compose : number of images of different classes that are combined into each image
        Training images are composed of training images only, test images of test images.
    layout : arrangement of composed images; see `minicaps.data.compose.compose`
    frames : "first" or "all" images of a file of custom data that contains several
    multi_label : whether zeros and ones as labels of custom data are multi-label even if every
        image has a single 1
    skip_bad : whether to leave out files of custom data that cannot be used
    invert : whether to swap light and dark in all images, or "auto"; see `minicaps.data.ink`
    older : whether to read images as older versions did, for runs that began then
        Resized images are padded with zeros instead of the color of their border, and arrays of
        other ranges than 0 to 1, 255 or 65535 are refused.
    whole : function that enlarges a size chosen by "auto", such as `Network.whole`
        Without it, a network may not see the last rows and columns; see `minicaps.models.sizes`.

    Returns
    -------
    A `Dataset`. The images of custom data that is large for the memory are read when they are
    needed; see `minicaps.data.own.cache`.

    Raises
    ------
    ValueError
        If the name is unknown, if `limit` is not between 1 and the number of training samples, if
        `folder` is given for a data set that is not searched for, or if the images cannot be
        composed.
    DataError
        If a file is missing or damaged, or belongs to a different data set.
    CheckpointError
        If the cache of images that are large for the memory cannot be written.
    """
    reading = own.Reading(frames, multi_label, skip_bad)
    target = Target(sides(size), fill=0.0 if older else None, older=older, whole=whole)
    dataset = ink.inverted(_load(name, folder, limit, seed, target, reading), invert)
    return dataset if compose is None else _composed(dataset, compose, layout, seed)


def _load(name, folder, limit, seed, target, reading):
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1 training sample, got {limit}")
    if name in NAMES and reading != own.Reading():
        raise ValueError(
            f"{name} can be read in one way only: leave out {' and '.join(reading.changed())}"
        )
    if name in download.SOURCES:
        train, test = download.read(name, folder, limit)
        dataset = Dataset(name, train, test, download.SOURCES[name].class_names)
    elif folder is not None:
        how = "drawn, not read" if name == "strokes" else "read from that path"
        raise ValueError(f"no folder is needed for {name}, which is {how}: omit {folder}")
    elif name == "strokes":
        dataset = _strokes(limit, seed)
    elif os.path.exists(name):
        return own.load(name, limit=limit, seed=seed, target=target, reading=reading)
    else:
        raise ValueError(
            f"unknown data set {name!r}, and no such path: choose from {', '.join(NAMES)}, or give"
            " the path of custom data"
        )
    target = replace(target, size=None) if target.size == "auto" else target
    parts = {part: fitted(getattr(dataset, part), target) for part in ("train", "test")}
    return replace(dataset, **parts)


def _composed(dataset, count, layout, seed):
    if dataset.train.groups is not None:
        raise ValueError(f"the frames of {dataset.name} cannot be composed: read the first only")
    if dataset.multi:
        raise ValueError(f"{dataset.name} is multi-label already: its images cannot be composed")
    parts = {
        name: compose_pictures(
            part, len(dataset.class_names), count=count, layout=layout, seed=seed
        )
        for name in ("train", "validation", "test")
        if (part := getattr(dataset, name)) is not None
    }
    notes = [f"each image is composed of {count} images of different classes ({layout})"]
    if layout == "overlap" and background(dataset.train.images) == "light":
        notes.append(
            "where images overlap, the brighter pixel is used: the light background of these images"
            " covers dark parts of the others, so only what is dark in all of them is seen"
        )
    return replace(dataset, **parts, notes=(*dataset.notes, *notes))


def _strokes(limit, seed):
    if limit is not None and limit > drawn.TRAIN_SIZE:
        raise ValueError(
            f"limit {limit:,} exceeds the {drawn.TRAIN_SIZE:,} training samples of strokes"
        )
    train = Split(*drawn.strokes(limit or drawn.TRAIN_SIZE, seed=seed, part="train"))
    test = Split(*drawn.strokes(drawn.TEST_SIZE, seed=seed, part="test"))
    return Dataset("strokes", train, test, drawn.CLASS_NAMES)
