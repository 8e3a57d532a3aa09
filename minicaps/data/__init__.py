"""Data sets by name: `strokes` (drawn), `mnist` and `fashion-mnist` (read, downloaded if needed).

`load` gives a `Dataset`; `minicaps.data.batches.batches` iterates over one of its splits. All is
NumPy; the trainer moves batches to its device. `python -m minicaps.data` lists, fetches and shows.
"""

from minicaps.data import sources
from minicaps.data import strokes as drawn
from minicaps.data.dataset import DataError, Dataset, Split

__all__ = ["NAMES", "DataError", "Dataset", "Split", "load"]

NAMES = ("strokes", *sources.SOURCES)


def load(name: str, *, folder=None, limit: int | None = None, seed: int = 0) -> Dataset:
    """Load a data set by its name.

    folder: searched first for the files of `mnist` and `fashion-mnist`; `sources.roots` lists the
        folders searched after it.
    limit: keep only the first so many training samples. The test split stays whole, so that test
        figures stay comparable.
    seed: which `strokes` are drawn; the others are what their files hold.

    Raises ValueError for an unknown name, a limit outside 1..training samples, or a folder for
    `strokes`; `DataError` for data that is missing, damaged or not what its name says.
    """
    if name not in NAMES:
        raise ValueError(f"unknown data set {name!r}: choose from {', '.join(NAMES)}")
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1 training sample, got {limit}")
    if name in sources.SOURCES:
        train, test = sources.read(name, folder, limit)
        return Dataset(name, train, test, sources.SOURCES[name].class_names)
    if folder is not None:
        raise ValueError(f"strokes are drawn, not read: leave the folder {folder} out")
    if limit is not None and limit > drawn.TRAIN_SIZE:
        raise ValueError(
            f"limit {limit} is more than the {drawn.TRAIN_SIZE} training samples of strokes"
        )
    train = Split(*drawn.strokes(limit or drawn.TRAIN_SIZE, seed=seed, part="train"))
    test = Split(*drawn.strokes(drawn.TEST_SIZE, seed=seed, part="test"))
    return Dataset(name, train, test, drawn.CLASS_NAMES)
