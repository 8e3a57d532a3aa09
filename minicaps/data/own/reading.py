"""Load custom data from class folders, a table of labels, four IDX files, or an .npz file.

Unambiguous input is converted, and a note informs the user. All other files are rejected with an
error that names them. No file is ignored silently.
"""

from dataclasses import replace
from pathlib import Path

from minicaps.data.dataset import Dataset
from minicaps.data.images import Target
from minicaps.data.own.archive import unpacked
from minicaps.data.own.array_files import from_idx, from_npz, idx_part
from minicaps.data.own.class_folders import from_folders
from minicaps.data.own.files import list_folder, name_of
from minicaps.data.own.found import Found, Reading
from minicaps.data.own.labels import is_one_hot
from minicaps.data.own.remarks import remarks
from minicaps.data.own.split import cut_test, limited, notes_on_test
from minicaps.errors import DataError, escaped

AS_IT_IS = Target()
STRICT = Reading()


def load(
    path,
    *,
    limit: int | None = None,
    seed: int = 0,
    target: Target = AS_IT_IS,
    reading: Reading = STRICT,
) -> Dataset:
    """Read custom data, and split it into training and test images.

    Parameters
    ----------
    path : path of the data, one of
        - a folder with one subfolder per class, or with subfolders `train`, `validation` and
          `test` that define the split, see `minicaps.data.own.listing`;
        - a folder of images with a table of labels, see `minicaps.data.own.table`;
        - a folder with four IDX files named like those of MNIST, which define the split;
        - an .npz file with the arrays `images`, `labels` (n,) with class numbers or names, or
          (n, classes) with zeros and ones, and optionally `class_names`;
        - a .zip archive of one of these folders.
        Zeros and ones are multi-label data unless every image has a single 1.
    limit : number of training samples to keep, stratified by class
    seed : seed of the split and of the samples to keep
    target : properties of the images
    reading : how to read the data

    Returns
    -------
    A `Dataset`.

    Raises
    ------
    DataError
        If the data cannot be used.
    ValueError
        If `limit` is out of range, or if `reading` asks for multi-label data and each image has a
        single class.
    """
    path = Path(path)
    found = read(path, target, reading)
    parts, class_names, notes = found.parts, found.class_names, found.notes
    if reading.multi_label and not all(part.multi for part in parts.values()):
        raise ValueError(f"{path} has a single class for each image: leave --multi-label out")
    train, test = parts["all" if "all" in parts else "train"], parts.get("test")
    validation, defined = parts.get("validation"), test is not None
    if test is None:
        train, test = cut_test(train, class_names, seed, path, validation=validation is None)
    others = len(train) + len(validation or ())
    notes = (*notes, *notes_on_test(test, others, class_names, defined=defined))
    if limit is not None:
        train = limited(train, limit, len(class_names), seed, path)
    notes = (*notes, *remarks({"train": train, "validation": validation, "test": test}))
    return Dataset(
        name_of(path.resolve()),
        train,
        test,
        class_names,
        by_class=True,
        validation=validation,
        notes=notes,
        skipped=found.skipped,
    )


def read(path, target: Target = AS_IT_IS, reading: Reading = STRICT) -> Found:
    """Read all images from a path, and convert them to the properties of `target`.

    If the target names the classes, the class numbers follow the order of these names, and the data
    need not contain every class.
    """
    found = _read(Path(path), target, reading)
    found = replace(found, notes=tuple(map(escaped, found.notes)))
    parts = found.parts.values()
    if reading.multi_label or not all(part.multi and is_one_hot(part.labels) for part in parts):
        return found
    note = (
        "every image has exactly one class, so the data is single-label; give --multi-label to"
        " treat it as multi-label"
    )
    parts = {
        name: replace(part, labels=part.labels.argmax(axis=1)) for name, part in found.parts.items()
    }
    return replace(found, parts=parts, notes=(*found.notes, note))


def _read(path, target, reading, source=None):
    """Read the data at a path. source: the archive that it was unpacked from, if any."""
    if path.suffix.lower() == ".zip" and path.is_file():
        with unpacked(path, target.classes) as folder:
            return _of_archive(path, folder, target, reading)
    if path.is_dir():
        entries, hidden = list_folder(path)
        folders = any(entry.is_dir() for entry in entries)
        if folders or not any(idx_part(entry) for entry in entries):
            return from_folders(path, entries, target, reading, source or path)
    if flags := replace(reading, multi_label=False).changed():
        raise DataError(f"{path} is not a folder of images: leave out {' and '.join(flags)}")
    return from_idx(path, entries, hidden, target) if path.is_dir() else from_npz(path, target)


def _of_archive(path, folder, target, reading):
    """Read an unpacked archive, and name the archive instead of the folder in all messages."""
    try:
        found = _read(folder, target, reading, path)
    except DataError as error:
        raise DataError(str(error).replace(str(folder), str(path))) from None
    skipped = [(name, why.replace(str(folder), str(path))) for name, why in found.skipped]
    notes = tuple(note.replace(str(folder), str(path)) for note in found.notes)
    return replace(found, notes=notes, skipped=tuple(skipped))
