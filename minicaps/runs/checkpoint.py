"""Save and load checkpoints, which are .npz files of plain arrays and one JSON string.

Because checkpoints do not use pickle, loading a file never executes code. A network that was
exported to a safetensors file is loaded like a checkpoint.
"""

import json
import zipfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from minicaps import ranks
from minicaps.errors import CheckpointError
from minicaps.runs import tensors_file
from minicaps.storage import locked, replacing

FORMAT = 1  # increased when older versions of minicaps would misread new files
BEST = "best.npz"  # the checkpoint that stands for a run folder
_META = "minicaps.json"
GROUPS = ("model", "optimizer")  # of the arrays that training saves


def save(path, arrays, meta):
    """Write arrays {name: array} and `meta`, a JSON-serializable dictionary, to `path` atomically.

    Raises CheckpointError if writing fails, in which case an existing file remains unchanged.
    """
    text = json.dumps({"format": FORMAT, **meta}).encode()
    with replacing(path) as file:
        np.savez(file, **{_META: np.frombuffer(text, np.uint8)}, **arrays)


def best_of(path) -> Path:
    """Return the path of the best checkpoint in a run folder; any other path is returned unchanged.

    Raises CheckpointError if a folder does not contain `best.npz`.
    """
    path = Path(path)
    if path.is_dir():
        path /= BEST
        if not path.exists():
            inside = sorted(run.parent for run in path.parent.glob(f"*/{BEST}"))
            why = "it is not a run folder, or its first epoch was not completed"
            if inside:
                why = f"it contains runs; choose one of them, such as {inside[0]}"
            raise CheckpointError(f"{path.parent} has no {BEST}: {why}")
    return path


def load(path, needs=(), groups=None):
    """Load (arrays, meta) as passed to `save`, or from a safetensors file of `minicaps.export`.

    Raises CheckpointError if the file is unusable.

    needs: keys that `meta` must contain. groups: names of the groups of arrays to load (see
    `pack`), or None to load all arrays; others may be large and are not read.
    """
    try:
        arrays, meta = _read(Path(path), groups)
        version = int(meta["format"])
    except FileNotFoundError as error:
        raise CheckpointError(f"there is no checkpoint {path}: give the folder of a run") from error
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error
    except (CheckpointError, MemoryError):
        raise
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


def _read(path, groups):
    """Read the arrays and the metadata of a checkpoint; raise errors of any type if damaged."""
    if path.suffix.lower() == tensors_file.SUFFIX:
        return tensors_file.load(path, arrays=groups is None or "model" in groups)
    with open(path, "rb") as file:  # NumPy takes anything but a zip archive for a pickle
        if path.suffix.lower() == ".onnx":
            raise CheckpointError(
                f"{path} is an ONNX file, which cannot be loaded, but safetensors files can: write"
                " one with minicaps.export RUN --to safetensors"
            )
        if not zipfile.is_zipfile(file):
            raise zipfile.BadZipFile("it is not a zip archive, or its end is missing")
    with np.load(path, allow_pickle=False) as file:
        wanted = [n for n in file.files if groups is None or n.partition("/")[0] in groups]
        arrays = {name: file[name] for name in file.files if name in (*wanted, _META)}
    if _META not in arrays:
        raise ValueError("it does not describe a network; is it a data set?")
    return arrays, json.loads(arrays.pop(_META).tobytes())


@contextmanager
def resuming(folder):
    """Lock a run folder and yield its last checkpoint as (arrays, meta), or None.

    The value is None if the folder does not contain a checkpoint yet.
    """
    with ranks.held_by_root(locked(folder)):
        last = Path(folder, "last.npz")
        yield load(last, ("model", "options", "progress"), GROUPS) if last.exists() else None


@contextmanager
def fitting(path):
    """Convert errors caused by the contents of a checkpoint to CheckpointError."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} does not fit this version of minicaps: {error!r}") from error


def pack(**groups):
    """Merge {group: {name: array}} into one dictionary with keys "group/name"."""
    return {f"{group}/{name}": a for group, named in groups.items() for name, a in named.items()}


def unpack(arrays, group):
    """Return the arrays of one group as {name: array}."""
    start = group + "/"
    return {name[len(start) :]: a for name, a in arrays.items() if name.startswith(start)}
