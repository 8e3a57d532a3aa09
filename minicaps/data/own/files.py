"""Files of custom data: list folders, skip hidden files, and collect errors of many files."""

from pathlib import Path

from minicaps.errors import DataError

JUNK = ("thumbs.db", "desktop.ini", "__macosx")  # from file managers; hidden like dot files
SHOWN = 5  # number of files named in a message


def list_folder(folder):
    """List a folder, sorted by name; returns the paths to use and the names of hidden entries."""
    try:
        paths = sorted(folder.iterdir(), key=lambda path: path.name)
    except OSError as error:
        raise DataError(f"cannot read the folder {folder}: {error.strerror}") from None
    hidden = [p for p in paths if p.name.startswith(".") or p.name.lower() in JUNK]
    return [p for p in paths if p not in set(hidden)], [p.name for p in hidden]


def files_in(folder) -> list[Path]:
    """List the files directly in a folder, sorted by name, without hidden ones.

    Raises `DataError` if there are none.
    """
    inside, _ = list_folder(Path(folder))
    files = [path for path in inside if not path.is_dir()]
    if not files:
        folders = [path.name for path in inside]
        holds = f", only folders: {some_of(folders)}; choose one of them" if folders else ""
        raise DataError(f"{folder} contains no images{holds}")
    return files


def for_each_file(root, names, verb, function):
    """Call function(path) for all files, with a progress bar if this takes long.

    All faults are reported in one `DataError`.
    """
    from tqdm import tqdm

    results, faults = [], []
    for name in tqdm(names, desc=verb, unit=" files", delay=1, leave=False, disable=None):
        try:
            results.append(function(root / name))
        except DataError as fault:
            faults.append(str(fault))
    if len(faults) == 1:
        raise DataError(faults[0])
    if faults:
        more = [f"and {len(faults) - SHOWN} more"] if len(faults) > SHOWN else []
        lines = "\n  ".join([*faults[:SHOWN], *more])
        raise DataError(f"{len(faults)} of {len(names)} files cannot be used:\n  {lines}")
    return results


def notes_on_hidden(names):
    """Return a note for the user in a tuple, or () if nothing is hidden."""
    return (f"skipped {len(names)} hidden entries: {some_of(names)}",) if names else ()


def some_of(names):
    """Format the first of many names for a message, with the number of the rest."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
