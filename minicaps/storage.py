"""Atomic file writing, and locks that restrict a folder or a task to one process at a time.

A file is written under a temporary name and renamed once it is complete, so that the last good
version survives a full disk, a killed process or a power failure.

Locks are those of the operating system (flock), which end with the process that holds them, however
it ends. Processes on several machines see each other's locks if the file system shares them: NFS 4
does, Lustre if mounted with `-o flock`, BeeGFS with `tuneUseGlobalFileLocks`, and SSHFS never.
"""

import csv
import io
import json
import os
import platform
import tempfile
import threading
import time
import warnings
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from minicaps.errors import CheckpointError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

FORMULA = tuple("=+-@\t\r")  # first characters of formulas in spreadsheets
FILE = "in-use"  # lock file for systems that cannot lock the folder itself
POLL = 0.05  # seconds between attempts to create a lock file


class InUse(CheckpointError):
    """Raised when another process holds a lock."""


@contextmanager
def replacing(path):
    """Open a binary file that replaces `path` once writing is complete.

    Raises CheckpointError if writing fails, in which case an existing file remains unchanged.
    Unfinished files left by killed processes are removed.
    """
    path = Path(path)
    # Unique: no other thread has this name, even on another machine that uses the same folder
    writer = f"{os.getpid()}-{threading.get_ident()}-{_machine()}"
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


def _machine():
    return platform.node().replace(".", "-")


def _sweep(path):
    """Remove unfinished versions of `path` left behind by terminated processes of this machine."""
    for part in path.parent.glob("*.part"):
        name, _, writer = part.stem.rpartition(".")
        process, _, rest = writer.partition("-")
        machine = rest.partition("-")[2] or _machine()  # older versions did not name it
        if name != path.name or machine != _machine() or not process.isdecimal():
            continue
        if not _alive(int(process)):
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
        _make_writable(folder)


def results_file(path, instead="choose another --out"):
    """Create the folder of a file, and check that the file can be written before any work is done.

    Raises CheckpointError if it cannot, with a message that suggests an alternative.
    """
    path = Path(path)
    with writing(path, instead):
        if path.exists() and not path.is_file():
            text = f"cannot write {path}: it exists and is not a regular file; {instead}"
            raise CheckpointError(text)
        _make_writable(path.parent)


def _make_writable(folder):
    """Create a folder; raise OSError if no file can be written to it."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


@contextmanager
def locked(folder):
    """Lock `folder` against other runs; raise InUse if another run holds the lock.

    The lock applies to the folder itself. Where this is impossible, as in a network folder, it
    applies to a lock file in the folder (see `claimed`).
    """
    said = f"another run is writing to {folder}: wait until it ends, or choose another folder"
    folder = Path(folder)
    with _opened(folder) as handle, ExitStack() as stack:
        if handle is None or not _flock(handle, said):
            stack.enter_context(claimed(folder / FILE, said=said))
        yield


@contextmanager
def _opened(folder):
    """Open a folder for locking; yield None if the system cannot do this."""
    if fcntl is None:
        yield None
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        yield handle
    finally:
        os.close(handle)


@contextmanager
def claimed(file, *, said=None, wait=False):
    """Hold the lock file `file`, which is created for this purpose and removed at the end.

    If another process holds it, wait for it, or raise InUse with the message `said`. Only the lock
    counts: a file that a killed process left behind has no effect. Systems without locks count the
    file itself, which must then be removed by hand after a crash.
    """
    file, said = Path(file), said or f"another process holds {file}"
    hold = _locked_file if fcntl else _created_file
    with hold(file, said, wait):
        yield


@contextmanager
def _locked_file(file, said, wait):
    with open(file, "ab") as opened:  # NFS grants exclusive locks only on files open for writing
        if not _flock(opened, said, wait):
            text = f"{file.parent} cannot be locked: make sure that no other process writes to it"
            warnings.warn(text, stacklevel=1)
        if _is_at(opened, file):
            try:
                yield
            finally:
                with suppress(OSError):  # the folder may be gone
                    file.unlink()
            return
    with _locked_file(file, said, wait):  # the last holder has removed the one that was opened
        yield


def _is_at(opened, path):
    """Return whether an open file is the one that now exists at `path`."""
    try:
        return os.path.samestat(os.fstat(opened.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


def _flock(handle, said, wait=False):
    """Lock an open file or folder; return whether the file system supports this."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        raise InUse(said) from None
    except OSError:
        return False
    return True


@contextmanager
def _created_file(file, said, wait):
    while True:
        try:
            file.touch(exist_ok=False)
            break
        except FileExistsError:
            if not wait:
                raise InUse(f"{said} or, if it has crashed, remove {file}") from None
            time.sleep(POLL)
    try:
        yield
    finally:
        with suppress(OSError):
            file.unlink()


def check_unused(folder):
    """Raise ValueError if `folder` exists and contains anything other than a lock file."""
    folder = Path(folder)
    if folder.exists() and not (folder.is_dir() and {p.name for p in folder.iterdir()} <= {FILE}):
        raise ValueError(
            f"{folder} already exists: choose another --out, or continue with --resume {folder}"
        )
