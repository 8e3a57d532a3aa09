"""Table of labels for custom data, a UTF-8 file named `labels.csv`.

The header alone decides which kind of table it is:

- One class per image: one column with the file, named `file`, `filename`, `image` or `path`; one
  with the name of its class, named `label`, `class` or `category`; and optionally a column `split`
  with the part of the image (`train`, `validation` or `test`). There are no other columns.

      file,label,split
      kitchen/1.png,cup,train
      kitchen/2.png,spoon,test

- Multi-label: the first column has the file, and each other column is named after a class. It has
  a 1 if the class is present in the image, and otherwise a 0. An image may have no class at all.

      file,cup,spoon
      kitchen/1.png,1,1
      kitchen/2.png,0,0
"""

import csv
import posixpath
from dataclasses import dataclass, field

import numpy as np

from minicaps.data.own.files import check_regular, some_of
from minicaps.data.own.found import PART_OF
from minicaps.data.own.labels import sorted_names
from minicaps.errors import DataError, counted, escaped

NAME = "labels.csv"
EXAMPLES = "'file,label' or 'file,cup,spoon'"
FILE = {"file", "filename", "image", "path"}
LABEL = {"label", "class", "category"}
SPLIT = "split"


@dataclass
class Table:
    """Contents of a table.

    labels: {file: name of its class}, or for multi-label data {file: zeros and ones (J,), uint8}.
    class_names: names of the J classes. parts: {file: part}, empty without a column `split`.
    """

    labels: dict
    class_names: tuple[str, ...]
    parts: dict[str, str] = field(default_factory=dict)
    multi: bool = False


class FaultyLines(DataError):
    """Raised when lines of a table are faulty.

    table: contents of the other lines. files: those named in faulty lines, as far as they can be
    told.
    """

    def __init__(self, message, table, files):
        super().__init__(message)
        self.table, self.files = table, files

    def __reduce__(self):  # its message alone could not make it again, on another rank
        return FaultyLines, (str(self), self.table, self.files)


def read_table(path) -> Table:
    """Read a table. If its format is invalid, a `DataError` describes and locates every fault.

    If only some lines are faulty, it is a `FaultyLines`, which has the contents of the others.
    """
    lines = _lines(path)
    header = [name.strip() for name in lines[0][1]] if lines else []
    columns = _columns(header)
    table = Table({}, () if columns else _classes(path, header), multi=not columns)
    seen_in, faults, faulty = {}, [], set()
    place = columns["file"] if columns else 0
    for number, row in lines[1:]:
        where, fields = f"line {number} of {path}", [text.strip() for text in row]
        name = _file_name(fields[min(place, len(fields) - 1)])
        try:
            if len(fields) != len(header):
                found = counted(len(fields), "field")
                raise DataError(f"{where} has {found}, but the header has {len(header)}")
            if not name:
                raise DataError(f"{where} has no file name, or one with a null byte")
            if name in seen_in:
                again = f"{where} repeats {escaped(name)} from line {seen_in[name]}"
                raise DataError(f"{again}: remove one of the lines")
            seen_in[name] = number
            _add(table, name, where, fields, columns)
        except DataError as fault:
            faults.append(str(fault))
            faulty.add(name)
    if faults:
        many = f"{path} has {len(faults):,} faulty lines:\n  " if len(faults) > 1 else ""
        unsure = faulty - table.labels.keys() - {""}
        raise FaultyLines(many + some_of(faults, "\n  "), table, unsure)
    if not table.labels:
        raise DataError(f"{path} lists no images: add a line for each image")
    if columns:
        table.class_names = sorted_names(set(table.labels.values()))
    return table


def _file_name(text):
    """Return the file that a field names, or "" if it can name none."""
    if not text or "\0" in text:
        return ""
    return posixpath.normpath(text.replace("\\", "/"))


def _lines(path):
    """Return pairs of line number and fields, without empty lines."""
    check_regular(path)
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:  # Excel adds a BOM
            return [(number, row) for number, row in enumerate(csv.reader(file), 1) if any(row)]
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} is not a table in UTF-8 ({error}): save it as CSV UTF-8") from None


def _add(table, name, where, fields, columns):
    """Add an image to a table; raise `DataError` if its line is faulty."""
    if not columns:
        table.labels[name] = _flags(where, fields[1:])
        return
    if not (label := fields[columns["label"]]):
        raise DataError(f"{where} has no label: write the name of a class")
    if SPLIT in columns:
        text = fields[columns[SPLIT]]
        if (part := PART_OF.get(text.lower())) is None:
            raise DataError(f"{where} has the split {text!r}: write train, validation or test")
        table.parts[name] = part
    table.labels[name] = label


def _columns(header):
    """Return the places of "file", "label" and "split" in the header of a single-label table.

    Returns None for the header of a multi-label table.
    """
    names = [name.lower() for name in header]
    kinds = ["file" if n in FILE else "label" if n in LABEL else n for n in names]
    if sorted(kinds) not in (["file", "label"], ["file", "label", SPLIT]):
        return None
    return {kind: place for place, kind in enumerate(kinds)}


def _classes(path, header):
    """Return the names of the classes in the header of a multi-label table."""
    if not header or header[0].lower() not in FILE or len(header) < 2:
        begin = f"it begins with {','.join(header)[:60]!r}" if header else "it is empty"
        raise DataError(f"{path} has no header separated by commas, such as {EXAMPLES}: {begin}")
    names = header[1:]
    if "" in names or len(set(names)) < len(names):
        raise DataError(f"the header of {path} needs a distinct, non-empty name for each class")
    return tuple(names)


def _flags(where, flags):
    if wrong := [flag for flag in flags if flag not in ("0", "1")]:
        raise DataError(
            f"{where} has {wrong[0]!r} for a class: write 1 if it is present, else 0; or give one"
            " class name per image in a table with the header file,label"
        )
    return np.array(flags, dtype=np.uint8)
