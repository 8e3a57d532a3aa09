"""Checkpoints: one .npz file of plain arrays and one JSON text. No pickle: loading runs no code."""

import json
import zipfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from minicaps.errors import CheckpointError
from minicaps.storage import locked, replacing

FORMAT = 1  # grows when older versions of minicaps would misread what is written
_META = "minicaps.json"


def save(path, arrays, meta):
    """Write {name: array} and `meta` (anything that JSON can hold) to `path`, all or nothing.

    Raises CheckpointError if that fails; a file that was there before is unchanged then.
    """
    text = json.dumps({"format": FORMAT, **meta}).encode()
    with replacing(path) as file:
        np.savez(file, **{_META: np.frombuffer(text, np.uint8)}, **arrays)


def best_of(path) -> Path:
    """The checkpoint of a run folder's best epoch; a path that is no folder is the checkpoint.

    Raises CheckpointError for a folder without `best.npz`.
    """
    path = Path(path)
    if path.is_dir():
        path /= "best.npz"
        if not path.exists():
            inside = sorted(run.parent for run in path.parent.glob("*/best.npz"))
            why = "no run, or its first epoch did not end"
            if inside:
                why = f"it holds runs; name one of them, such as {inside[0]}"
            raise CheckpointError(f"{path.parent} has no best.npz: {why}")
    return path


def load(path, needs=()):
    """Return (arrays, meta) as given to `save`; CheckpointError when the file cannot be trusted.

    needs: names that `meta` must have.
    """
    try:
        with open(path, "rb") as file:  # NumPy takes all that is no zip archive for a pickle
            if not zipfile.is_zipfile(file):
                raise zipfile.BadZipFile("it is no zip archive, or its end is missing")
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        if _META not in arrays:
            raise ValueError("it has no description of a network; is it a data set?")
        meta = json.loads(arrays.pop(_META).tobytes())
        version = int(meta["format"])
    except FileNotFoundError as error:
        raise CheckpointError(f"there is no checkpoint {path}: name the folder of a run") from error
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error
    except Exception as error:  # damaged bytes make zipfile, zlib, NumPy and json raise anything
        raise CheckpointError(f"{path} is damaged or no minicaps checkpoint: {error}") from error
    if version > FORMAT:
        raise CheckpointError(
            f"{path} has checkpoint format {version}, this minicaps reads up to {FORMAT}: update it"
        )
    if missing := [name for name in needs if name not in meta]:
        raise CheckpointError(f"{path} lacks {', '.join(missing)}: it was not saved by a training")
    return arrays, meta


@contextmanager
def resuming(folder):
    """Lock a run folder, and give (arrays, meta) of its last checkpoint; None before the first."""
    with locked(folder):
        last = Path(folder, "last.npz")
        yield load(last, ("model", "options", "progress")) if last.exists() else None


@contextmanager
def fitting(path):
    """Make the errors that unexpected content of a checkpoint causes CheckpointErrors."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} does not fit this minicaps: {error!r}") from error


def pack(**groups):
    """Join {group: {name: array}} to one dictionary with names "group/name"."""
    return {f"{group}/{name}": a for group, named in groups.items() for name, a in named.items()}


def unpack(arrays, group):
    """Return {name: array} of one group."""
    start = group + "/"
    return {name[len(start) :]: a for name, a in arrays.items() if name.startswith(start)}
