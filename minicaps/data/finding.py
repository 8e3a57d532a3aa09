"""Find the image files that a user names: files, folders, and names from standard input."""

import io
import os
import sys
from pathlib import Path

from minicaps.data.own.files import walk
from minicaps.errors import DataError

STANDARD_INPUT = "-"


class PipedImage(io.BytesIO):
    """Image that was read from standard input."""

    stem = "standard-input"  # name of its figure

    def __str__(self):
        return "standard input"


def find_images(names) -> tuple[list[Path | PipedImage], list[DataError]]:
    """List the image files at the given paths, and the errors of paths that cannot be searched.

    Folders are searched with their subfolders. The name "-" stands for standard input, which
    contains either the names of files and folders, one per line, or a single image.
    """
    files, faults = [], []
    for name in names:
        try:
            found = _piped() if name == STANDARD_INPUT else _at(name)
        except DataError as fault:
            faults.append(fault)
        else:
            files += found[0]
            faults += found[1]
    return files, faults


def _at(name):
    if not os.path.isdir(name):  # not Path.is_dir, which raises an OSError for a long name
        return [Path(name)], []
    files, _, faults = walk(name)
    if not files and not faults:
        raise DataError(f"{name} contains no images")
    return files, faults


def _piped():
    """Read standard input. An image file contains a zero byte, which no file name does."""
    try:
        content = sys.stdin.buffer.read()
    except (AttributeError, OSError) as error:  # None if closed
        raise DataError(f"cannot read standard input: {error}") from None
    if b"\0" in content:
        return [PipedImage(content)], []
    names = [os.fsdecode(line.rstrip(b"\r")) for line in content.split(b"\n")]
    if not any(names):
        raise DataError("standard input contains no image and no file names")
    return find_images(name for name in names if name not in ("", STANDARD_INPUT))
