"""One run at a time in a folder: a lock that is gone when its process is, however that ended."""

import os
from contextlib import contextmanager, suppress
from pathlib import Path

from minicaps.runs.checkpoint import CheckpointError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

FILE = "in-use"  # stands in the folder where the system cannot lock the folder itself


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
