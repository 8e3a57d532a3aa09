"""Data sets: `strokes` is drawn, `mnist` and `fashion-mnist` are read, and downloaded if needed,
one's own are read from their path.

`load` gives a `Dataset`; `minicaps.data.batches.batches` iterates over one of its splits. All is
NumPy; the trainer moves batches to its device. `python -m minicaps.data` lists, fetches and shows.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from minicaps.data import download, own
from minicaps.data import strokes as drawn
from minicaps.data.compose import compose as compose_pictures
from minicaps.data.dataset import Dataset, Split
from minicaps.data.images import Target, fitted
from minicaps.errors import DataError

__all__ = ["NAMES", "DataError", "Dataset", "Split", "load"]

NAMES = ("strokes", *download.SOURCES)


def load(
    name: str,
    *,
    folder: str | Path | None = None,
    limit: int | None = None,
    seed: int = 0,
    size: Sequence[int] | None = None,
    compose: int | None = None,
    layout: str = "overlap",
) -> Dataset:
    """Load a data set by its name, or one's own by its path (`minicaps.data.own` says what it may
    be). A name goes before a file of the same name: write `./mnist`.

    folder: searched first for the files of `mnist` and `fashion-mnist`; `download.roots` lists the
        folders searched after it.
    limit: keep only so many training samples, the first ones, or of one's own some of each class.
        The test split stays whole, so that test figures stay comparable.
    seed: which `strokes` are drawn, how one's own data is split, and what is composed; the others
        are what their files hold.
    size: (height, width) that all pictures are fitted to, proportions kept and zeros around.
    compose: make pictures of so many, of different classes; layout: where in the picture they are,
        as `minicaps.data.compose.compose` says. Training pictures are made of training pictures
        only, test pictures of test pictures.

    Raises ValueError for an unknown name, a limit outside 1..training samples, a folder for what is
    not searched, or what cannot be composed; `DataError` for data that is missing, damaged or not
    what its name says.
    """
    dataset = _load(name, folder, limit, seed, size)
    return dataset if compose is None else _composed(dataset, compose, layout, seed)


def _load(name, folder, limit, seed, size):
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1 training sample, got {limit}")
    if name in download.SOURCES:
        train, test = download.read(name, folder, limit)
        dataset = Dataset(name, train, test, download.SOURCES[name].class_names)
    elif folder is not None:
        how = "drawn, not read" if name == "strokes" else "read from their own path"
        raise ValueError(f"{name} are {how}: leave the folder {folder} out")
    elif name == "strokes":
        dataset = _strokes(limit, seed)
    elif os.path.exists(name):
        return own.load(name, limit=limit, seed=seed, size=size)
    else:
        raise ValueError(
            f"unknown data set {name!r}: choose from {', '.join(NAMES)}, or give the path of your"
            " own; there is none of this name"
        )
    parts = {part: fitted(getattr(dataset, part), Target(size)) for part in ("train", "test")}
    return replace(dataset, **parts)


def _composed(dataset, count, layout, seed):
    if dataset.multi:
        raise ValueError(f"{dataset.name} has pictures of several classes: nothing to compose")
    train, test = (
        compose_pictures(part, len(dataset.class_names), count=count, layout=layout, seed=seed)
        for part in (dataset.train, dataset.test)
    )
    note = f"each picture is composed of {count} of different classes ({layout})"
    return replace(dataset, train=train, test=test, notes=(*dataset.notes, note))


def _strokes(limit, seed):
    if limit is not None and limit > drawn.TRAIN_SIZE:
        raise ValueError(
            f"limit {limit} is more than the {drawn.TRAIN_SIZE} training samples of strokes"
        )
    train = Split(*drawn.strokes(limit or drawn.TRAIN_SIZE, seed=seed, part="train"))
    test = Split(*drawn.strokes(drawn.TEST_SIZE, seed=seed, part="test"))
    return Dataset("strokes", train, test, drawn.CLASS_NAMES)
