"""Files that are written whole or not at all, and folders that one run at a time writes into.

A file is written under a temporary name and renamed when it is complete, so that the last good one
survives a full disk, a killed process or a power cut.
"""

import csv
import io
import json
import os
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path

from minicaps.errors import CheckpointError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

FILE = "in-use"  # stands in the folder where the system cannot lock the folder itself


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


def write_json(path, value):
    """Write `value` to `path`, all or nothing, readable by people too."""
    with replacing(path) as file:  # ASCII, so it is the same in any locale
        file.write(json.dumps(value, indent=2).encode("ascii") + b"\n")


def write_csv(path, header, rows):
    """Write a table to `path`, all or nothing; names of files are written as they are."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    with replacing(path) as file:
        file.write(text.getvalue().encode("utf-8", "surrogateescape"))


# ---- folders


def reason(error):
    if isinstance(error, FileExistsError | NotADirectoryError):
        return "a file is where a folder is needed"
    return error.strerror or str(error)


@contextmanager
def writing(place, instead="choose another --out"):
    """Make an OSError in the block a CheckpointError, which says what to do instead."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"cannot write {place}: {reason(error)}; {instead}") from error


def results_folder(folder, instead="choose another --out"):
    """Make a folder, and find out now, not after the work, that it can be written into.

    Raises CheckpointError, which says what to do instead.
    """
    with writing(folder, instead):
        Path(folder).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass


@contextmanager
def locked(folder):
    """Keep other processes that ask for this lock out of `folder`; CheckpointError if one has it.

    The folder itself is locked: there is nothing that a kill -9 could leave behind. On a system
    without such locks a file stands for it, which after a crash is to be removed by hand.
    """
    hold = _folder_lock if fcntl else _file_lock
    with hold(Path(folder)):
        yield


@contextmanager
def _folder_lock(folder):
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CheckpointError(
                f"another run is writing into {folder}: wait for its end, or take another folder"
            ) from None
        except OSError:  # a network's file system that has no locks
            pass
        yield
    finally:
        os.close(handle)


@contextmanager
def _file_lock(folder):
    file = folder / FILE
    try:
        file.touch(exist_ok=False)
    except FileExistsError:
        raise CheckpointError(
            f"another run is writing into {folder}: wait for its end, or, if it has crashed, remove"
            f" {file}"
        ) from None
    try:
        yield
    finally:
        with suppress(OSError):  # the folder may be gone
            file.unlink()


def check_unused(folder):
    """Raise ValueError if a new run cannot have `folder` for itself."""
    folder = Path(folder)
    if folder.exists() and not (folder.is_dir() and {p.name for p in folder.iterdir()} <= {FILE}):
        raise ValueError(
            f"{folder} exists already: choose another --out, or go on with --resume {folder}"
        )
