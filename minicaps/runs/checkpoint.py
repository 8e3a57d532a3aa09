"""Checkpoints: one .npz file of plain arrays and one JSON text. No pickle: loading runs no code.

Files are written under a temporary name and renamed when they are complete, so that the last good
one survives a full disk, a killed process or a power cut.
"""

import json
import os
import zipfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np

FORMAT = 1  # grows when older versions of minicaps would misread what is written
_META = "minicaps.json"


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be written, or a file that cannot be trusted as one."""


@contextmanager
def replacing(path):
    """Give a binary file to write into; it takes the place of `path` when all is written.

    Raises CheckpointError if that fails; a file that was there before is unchanged then. What a
    process that was killed has left of its writing is removed.
    """
    path = Path(path)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")  # of this process alone
    try:
        if path.exists() and not path.is_file():  # renaming would take the place of a device
            raise CheckpointError(f"cannot write {path}: there is something that is no file")
        _sweep(path)
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise CheckpointError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _sweep(path):
    """Remove the unfinished files for `path` whose processes are no more."""
    for part in path.parent.glob("*.part"):
        name, _, process = part.stem.rpartition(".")
        if name == path.name and process.isdecimal() and not _alive(int(process)):
            part.unlink(missing_ok=True)


def _alive(process):
    """Tell whether a process runs; True where the system does not tell without harm."""
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)  # sends nothing
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # another user's; no number of a process
        pass
    return True


def save(path, arrays, meta):
    """Write {name: array} and `meta` (anything that JSON can hold) to `path`, all or nothing.

    Raises CheckpointError if that fails; a file that was there before is unchanged then.
    """
    text = json.dumps({"format": FORMAT, **meta}).encode()
    with replacing(path) as file:
        np.savez(file, **{_META: np.frombuffer(text, np.uint8)}, **arrays)


def write_json(path, value):
    """Write `value` to `path`, all or nothing, readable by people too."""
    with replacing(path) as file:  # ASCII, so it is the same in any locale
        file.write(json.dumps(value, indent=2).encode("ascii") + b"\n")


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


def pack(**groups):
    """Join {group: {name: array}} to one dictionary with names "group/name"."""
    return {f"{group}/{name}": a for group, named in groups.items() for name, a in named.items()}


def unpack(arrays, group):
    """Return {name: array} of one group."""
    start = group + "/"
    return {name[len(start) :]: a for name, a in arrays.items() if name.startswith(start)}
