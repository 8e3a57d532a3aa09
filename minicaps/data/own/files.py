"""List the files of custom data, skip hidden ones, and collect errors from many files."""

import os
from collections import deque
from pathlib import Path

from minicaps.errors import DataError, escaped

JUNK = ("thumbs.db", "desktop.ini", "__macosx")  # from file managers; hidden like dot files
SHOWN = 5  # number of files named in a message


def list_folder(folder):
    """Return the visible entries of a folder, sorted by name, and the names of hidden entries."""
    try:
        paths = sorted(folder.iterdir(), key=lambda path: path.name)
    except OSError as error:
        raise DataError(f"cannot read the folder {escaped(folder)}: {error.strerror}") from None
    hidden = [p for p in paths if p.name.startswith(".") or p.name.lower() in JUNK]
    return [p for p in paths if p not in set(hidden)], [p.name for p in hidden]


def walk(folder) -> tuple[list[Path], list[Path], list[DataError]]:
    """List the files in a folder and its subfolders, hidden entries, and unreadable folders.

    The files of each folder are sorted by name and come before those of its subfolders. A folder
    is searched only once, even if links lead to it: under its own name or, if that is outside of
    `folder`, under the first link. Other links to it are counted as hidden.
    """
    files_of, hidden, faults, searched = {}, [], [], set()
    ahead, links = deque([Path(folder)]), deque()
    while ahead or links:
        place = (ahead or links).popleft()
        if (real := os.path.realpath(place)) in searched:
            hidden.append(place)
            continue
        searched.add(real)
        try:
            inside, names = list_folder(place)
        except DataError as fault:
            faults.append(fault)
            continue
        hidden += [place / name for name in names]
        files_of[place] = [path for path in inside if not os.path.isdir(path)]
        for path in sorted(set(inside).difference(files_of[place])):
            (links if path.is_symlink() else ahead).append(path)
    files = [path for place in sorted(files_of) for path in files_of[place]]
    return files, sorted(hidden), faults


def check_regular(path):
    """Raise `DataError` for a pipe or a device, which may never end."""
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise DataError(f"{path} is not a regular file: replace or remove it")


class BadFiles(DataError):
    """Raised when some files cannot be used.

    reasons: {name: sentence}. results: those of the other files.
    """

    def __init__(self, reasons, results):
        super().__init__("\n".join(reasons.values()))
        self.reasons, self.results = reasons, results

    def __reduce__(self):  # its message alone could not make it again, on another rank
        return BadFiles, (self.reasons, self.results)


def for_each_file(root, names, verb, function):
    """Call function(path) for each file, and show a progress bar if this takes a while.

    Errors are collected from all files and raised as a single `BadFiles`.
    """
    from tqdm import tqdm

    results, reasons = [], {}
    for name in tqdm(names, desc=verb, unit=" files", delay=1, leave=False, disable=None):
        try:
            results.append(function(root / name))
        except DataError as fault:
            reasons[name] = escaped(fault)
    if reasons:
        raise BadFiles(reasons, results)
    return results


def name_of(path) -> str:
    """Return the name of a data set: that of its folder or file, without .npz or .zip."""
    path = Path(path)
    return path.stem if path.suffix.lower() in (".npz", ".zip") else path.name


def notes_on_hidden(names):
    """Return a tuple with one note for the user, or an empty tuple if nothing is hidden."""
    what = "entry" if len(names) == 1 else "entries"
    return (f"skipped {len(names):,} hidden {what}: {some_of(names)}",) if names else ()


def some_of(names, between=", "):
    """Format the first few names for a message, followed by the number of remaining names."""
    more = f"{between.lstrip(',')}and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return between.join(map(escaped, names[:SHOWN])) + more
