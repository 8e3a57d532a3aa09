"""Unpack zip archives of custom data into a temporary folder."""

import os
import shutil
import tempfile
import zipfile
import zlib
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from minicaps.data.own import table
from minicaps.data.own.files import JUNK, list_folder
from minicaps.data.own.found import PART_OF
from minicaps.errors import DataError, escaped

MOST_BYTES = 8 * 10**9  # unpacked; a small archive can contain far more
MOST_FILES = 10**6


@contextmanager
def unpacked(path, classes):
    """Unpack an archive, and yield the folder that holds its data; remove it at the end.

    If the archive contains a single folder around everything else, that folder is the one.

    classes: names of the classes of a network, or None.
    """
    with tempfile.TemporaryDirectory(prefix="minicaps-") as folder:
        try:
            with zipfile.ZipFile(path) as archive:
                _extract(archive, path, Path(folder))
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
            raise DataError(
                f"{path} is not a valid zip archive ({error}): get a new copy"
            ) from None
        except RuntimeError:
            raise DataError(f"{path} is encrypted: unpack it, and give the folder") from None
        except OSError as error:
            raise DataError(f"cannot unpack {path}: {error.strerror or error}") from None
        yield _inner(Path(folder), classes or ())


def _extract(archive, path, folder):
    """Extract the files of an archive that stay within the folder and within the limits."""
    files = []
    for entry in archive.infolist():
        parts = PurePosixPath(entry.filename.replace("\\", "/")).parts
        if ".." in parts or entry.filename.startswith(("/", "\\")):
            raise DataError(f"{path} would write outside of its folder: {escaped(entry.filename)}")
        if not entry.is_dir() and not any(part.lower() in JUNK for part in parts):
            files.append(entry)
    size = sum(entry.file_size for entry in files)
    most = min(MOST_BYTES, shutil.disk_usage(folder).free)
    if size > most or len(files) > MOST_FILES:
        raise DataError(
            f"{path} contains {len(files):,} files of {size / 1e9:.1f} GB in all, but at most"
            f" {MOST_FILES:,} files of {most / 1e9:.1f} GB are unpacked: unpack it, and give the"
            " folder"
        )
    changed = os.stat(path).st_mtime_ns
    for entry in files:
        extracted = archive.extract(entry, folder)  # reads no more than `file_size` bytes
        os.utime(extracted, ns=(changed, changed))  # tells the cache whether the archive changed


def _inner(folder, classes):
    """Descend into a single folder that holds other folders or a table, unless it is a class."""
    entries, _ = list_folder(folder)
    if len(entries) != 1 or not entries[0].is_dir():
        return folder
    only = entries[0]
    inside, _ = list_folder(only)
    holds_data = any(entry.is_dir() or entry.name == table.NAME for entry in inside)
    if only.name in (*PART_OF, *classes) or not holds_data:
        return folder
    return _inner(only, classes)
