"""Atomic file writing, and locks that restrict a folder to one run at a time.

A file is written under a temporary name and renamed once it is complete, so that the last good
version survives a full disk, a killed process or a power failure.
"""

import csv
import io
import json
import os
import tempfile
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

from minicaps.errors import CheckpointError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

FORMULA = tuple("=+-@\t\r")  # first characters of formulas in spreadsheets
FILE = "in-use"  # lock file for systems that cannot lock the folder itself


@contextmanager
def replacing(path):
    """Open a binary file that replaces `path` once writing is complete.

    Raises CheckpointError if writing fails, in which case an existing file remains unchanged.
    Unfinished files left by killed processes are removed.
    """
    path = Path(path)
    writer = f"{os.getpid()}-{threading.get_ident()}"  # unique: no other thread has this name
    temporary = path.with_name(f"{path.name}.{writer}.part")
    try:
        if path.exists() and not path.is_file():  # renaming would replace a device
            raise CheckpointError(f"cannot write {path}: it exists and is not a regular file")
        _sweep(path)
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise CheckpointError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):  # it would hide the first error, as on a read-only disk
            temporary.unlink(missing_ok=True)


def _sweep(path):
    """Remove unfinished versions of `path` left behind by terminated processes."""
    for part in path.parent.glob("*.part"):
        name, _, writer = part.stem.rpartition(".")
        process = writer.partition("-")[0]
        if name == path.name and process.isdecimal() and not _alive(int(process)):
            part.unlink(missing_ok=True)


def _alive(process):
    """Return whether a process is running, or True if the system cannot check this safely."""
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)  # signal 0 only checks that the process exists
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # owned by another user; not a valid process ID
        pass
    return True


def write_json(path, value):
    """Write `value` to `path` atomically as indented JSON."""
    with replacing(path) as file:  # ASCII, so the file is the same in every locale
        file.write(json.dumps(value, indent=2).encode("ascii") + b"\n")


def write_csv(path, header, rows):
    """Write a table to `path` atomically, preserving undecodable bytes in file names.

    A spreadsheet would take a text such as `=1+1` for a formula, so an apostrophe precedes it.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([*map(as_text, row)] for row in (header, *rows))
    with replacing(path) as file:
        file.write(text.getvalue().encode("utf-8", "surrogateescape"))


def as_text(cell):
    """Put an apostrophe before a text that a spreadsheet would run as a formula."""
    formula = isinstance(cell, str) and cell[:1] in FORMULA and not _is_number(cell)
    return f"'{cell}" if formula else cell


def _is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return True


# ---- folders


def reason(error):
    if isinstance(error, FileExistsError | NotADirectoryError):
        return "a file exists where a folder is needed"
    return error.strerror or str(error)


@contextmanager
def writing(place, instead="choose another --out"):
    """Convert any OSError in the block to a CheckpointError that suggests an alternative."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"cannot write {place}: {reason(error)}; {instead}") from error


def results_folder(folder, instead="choose another --out"):
    """Create a folder and check that it is writable before any work is done.

    Raises CheckpointError if the folder is not writable, with a message that suggests an
    alternative.
    """
    with writing(folder, instead):
        Path(folder).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass


@contextmanager
def locked(folder):
    """Lock `folder` against other runs; raise CheckpointError if another run holds the lock.

    The lock applies to the folder itself, so a process ended by kill -9 leaves no lock behind.
    Systems without folder locks use a lock file, which must be removed by hand after a crash.
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
                f"another run is writing to {folder}: wait until it ends, or choose another folder"
            ) from None
        except OSError:  # a network file system without locks
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
            f"another run is writing to {folder}: wait until it ends or, if it has crashed, remove"
            f" {file}"
        ) from None
    try:
        yield
    finally:
        with suppress(OSError):  # the folder may be gone
            file.unlink()


def check_unused(folder):
    """Raise ValueError if `folder` exists and contains anything other than a lock file."""
    folder = Path(folder)
    if folder.exists() and not (folder.is_dir() and {p.name for p in folder.iterdir()} <= {FILE}):
        raise ValueError(
            f"{folder} already exists: choose another --out, or continue with --resume {folder}"
        )
