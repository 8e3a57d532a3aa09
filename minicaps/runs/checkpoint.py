"""Checkpoints: .npz files of plain arrays and one JSON text. No pickle, so loading runs no code."""

import json
import zipfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from minicaps.errors import CheckpointError
from minicaps.storage import locked, replacing

FORMAT = 1  # increased when older versions of minicaps would misread new files
_META = "minicaps.json"


def save(path, arrays, meta):
    """Write {name: array} and `meta`, a dictionary that JSON can store, to `path` atomically.

    Raises CheckpointError if writing fails; an existing file is then left unchanged.
    """
    text = json.dumps({"format": FORMAT, **meta}).encode()
    with replacing(path) as file:
        np.savez(file, **{_META: np.frombuffer(text, np.uint8)}, **arrays)


def best_of(path) -> Path:
    """Return the checkpoint of a run folder's best epoch; any other path is returned unchanged.

    Raises CheckpointError for a folder without `best.npz`.
    """
    path = Path(path)
    if path.is_dir():
        path /= "best.npz"
        if not path.exists():
            inside = sorted(run.parent for run in path.parent.glob("*/best.npz"))
            why = "it is not a run folder, or its first epoch was not completed"
            if inside:
                why = f"it contains runs; choose one of them, such as {inside[0]}"
            raise CheckpointError(f"{path.parent} has no best.npz: {why}")
    return path


def load(path, needs=()):
    """Return (arrays, meta) as passed to `save`; raise CheckpointError if the file is unusable.

    needs: keys that `meta` must contain.
    """
    try:
        with open(path, "rb") as file:  # NumPy takes anything but a zip archive for a pickle
            if not zipfile.is_zipfile(file):
                raise zipfile.BadZipFile("it is not a zip archive, or its end is missing")
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        if _META not in arrays:
            raise ValueError("it does not describe a network; is it a data set?")
        meta = json.loads(arrays.pop(_META).tobytes())
        version = int(meta["format"])
    except FileNotFoundError as error:
        raise CheckpointError(f"there is no checkpoint {path}: give the folder of a run") from error
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error
    except Exception as error:  # zipfile, zlib, NumPy and json raise anything on damaged bytes
        raise CheckpointError(f"{path} is damaged or not a minicaps checkpoint: {error}") from error
    if version > FORMAT:
        raise CheckpointError(
            f"{path} has checkpoint format {version}, but this version of minicaps reads formats up"
            f" to {FORMAT}: update minicaps"
        )
    if missing := [name for name in needs if name not in meta]:
        raise CheckpointError(f"{path} lacks {', '.join(missing)}: it was not saved in training")
    return arrays, meta


@contextmanager
def resuming(folder):
    """Lock a run folder and yield (arrays, meta) of its last checkpoint, or None if it has none."""
    with locked(folder):
        last = Path(folder, "last.npz")
        yield load(last, ("model", "options", "progress")) if last.exists() else None


@contextmanager
def fitting(path):
    """Re-raise errors caused by the content of a checkpoint as CheckpointErrors."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} does not fit this version of minicaps: {error!r}") from error


def pack(**groups):
    """Merge {group: {name: array}} into one dictionary with keys "group/name"."""
    return {f"{group}/{name}": a for group, named in groups.items() for name, a in named.items()}


def unpack(arrays, group):
    """Return the arrays of one group, {name: array}."""
    start = group + "/"
    return {name[len(start) :]: a for name, a in arrays.items() if name.startswith(start)}
