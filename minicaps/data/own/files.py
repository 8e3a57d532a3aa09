"""Files of one's own in their folders: what is there, what is hidden, and what fails of many."""

from pathlib import Path

from minicaps.errors import DataError

JUNK = ("thumbs.db", "desktop.ini", "__macosx")  # left by file managers, like names with a dot
SHOWN = 5  # of many files, so many are named


def list_folder(folder):
    """What lies in a folder, sorted by name: the paths to use, and the names of hidden ones."""
    try:
        paths = sorted(folder.iterdir(), key=lambda path: path.name)
    except OSError as error:
        raise DataError(f"cannot read the folder {folder}: {error.strerror}") from None
    hidden = [p for p in paths if p.name.startswith(".") or p.name.lower() in JUNK]
    return [p for p in paths if p not in set(hidden)], [p.name for p in hidden]


def files_in(folder) -> list[Path]:
    """The files right in a folder, sorted by name, without hidden ones; `DataError` if none."""
    inside, _ = list_folder(Path(folder))
    files = [path for path in inside if not path.is_dir()]
    if not files:
        folders = [path.name for path in inside]
        holds = f", only folders: {some_of(folders)}; name one of them" if folders else ""
        raise DataError(f"{folder} has no pictures right in it{holds}")
    return files


def for_each_file(root, names, verb, function):
    """function(path) for all files, with a bar if it takes time; all faults in one `DataError`."""
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
    """A note for the user, in a tuple; none where nothing is hidden."""
    return (f"skipped {len(names)} hidden: {some_of(names)}",) if names else ()


def some_of(names):
    """The first of many names, for a message, and how many more there are."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
