"""Table of labels for multi-label custom data.

The table is a UTF-8 file named `labels.csv`. Its header lists the class names. Every other line
gives the file name of an image, followed by a 1 for each class that is present and a 0 for each
class that is absent. An image may have no class at all:

    file,cup,spoon
    kitchen/1.png,1,1
    kitchen/2.png,0,0
"""

import csv

import numpy as np

from minicaps.data.own.files import check_regular
from minicaps.errors import DataError

NAME = "labels.csv"
EXAMPLE = "file,cup,spoon"


def read_table(path) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """Read a table, and return a dictionary {file: labels} and the names of the J classes.

    The labels of a file are a uint8 array (J,).

    If the format of the table is invalid, a `DataError` describes the problem and its location.
    """
    check_regular(path)
    try:
        with open(path, newline="", encoding="utf-8-sig") as table:  # Excel adds a BOM
            lines = [(number, row) for number, row in enumerate(csv.reader(table), 1) if any(row)]
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} is not a table in UTF-8 ({error}): save it as CSV UTF-8") from None
    class_names = _header(path, lines)
    labels, seen_in = {}, {}
    for number, (name, *flags) in lines[1:]:
        where = f"line {number} of {path}"
        if len(flags) != len(class_names):
            raise DataError(
                f"{where} has {1 + len(flags)} fields, but the header has {1 + len(class_names)}:"
                " give the file, and 0 or 1 for each class"
            )
        file = name.strip().replace("\\", "/")
        if file in labels:
            raise DataError(
                f"{where} repeats {file} from line {seen_in[file]}: remove one of the lines"
            )
        if wrong := [flag for flag in flags if flag.strip() not in ("0", "1")]:
            raise DataError(
                f"{where} has {wrong[0]!r} for a class: write 1 if it is present, else 0"
            )
        labels[file], seen_in[file] = np.array(flags, dtype=np.uint8), number
    if not labels:
        raise DataError(f"{path} lists no images: add a line for each image")
    return labels, class_names


def _header(path, lines):
    header = [name.strip() for name in lines[0][1]] if lines else []
    if header[:1] != ["file"] or len(header) < 2:
        begin = f"it begins with {','.join(header)[:60]!r}" if header else "it is empty"
        raise DataError(
            f"{path} has no header with the names of the classes, separated by commas, such as"
            f" {EXAMPLE!r}: {begin}"
        )
    names = header[1:]
    if "" in names or len(set(names)) < len(names):
        raise DataError(f"the header of {path} needs a distinct, non-empty name for each class")
    return tuple(names)
