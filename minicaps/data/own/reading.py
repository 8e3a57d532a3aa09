"""Load custom data from class folders, a table of labels, four IDX files, or an .npz file.

Unambiguous input is converted, and a note informs the user. All other files are rejected with an
error that names them. No file is ignored silently.
"""

from pathlib import Path

from minicaps.data.dataset import Dataset, Split
from minicaps.data.images import Target, sides
from minicaps.data.own.array_files import from_idx, from_npz, idx_part
from minicaps.data.own.class_folders import from_folders
from minicaps.data.own.files import list_folder
from minicaps.data.own.split import TEST_SHARE, cut_test, limited

AS_IT_IS = Target()


def load(path, *, limit: int | None = None, seed: int = 0, size=None) -> Dataset:
    """Read custom data, and split it into training and test images.

    Parameters
    ----------
    path : path of the data, one of
        - a folder with one subfolder per class;
        - a folder of multi-label images with a table of labels, see `minicaps.data.own.table`;
        - a folder with four IDX files named like those of MNIST, which define the split;
        - an .npz file with the arrays `images`, `labels` (n,), or (n, classes) with zeros and ones,
          and optionally `class_names`.
    limit : number of training samples to keep, stratified by class
    seed : seed of the split and of the samples to keep
    size : (height, width), or N for both, that all images are resized to; None keeps their size

    Returns
    -------
    A `Dataset`.

    Raises
    ------
    DataError
        If the data cannot be used.
    ValueError
        If `limit` is out of range, or `size` is not a size.
    """
    path = Path(path)
    parts, class_names, notes = read(path, Target(sides(size)))
    if len(parts) == 1:
        whole = parts[0]
        parts = cut_test(whole, class_names, seed, path)
        if (share := len(parts[1]) / len(whole)) > 1.5 * TEST_SHARE:
            several = f"{len(parts[1]):,} of {len(whole):,} images ({share:.0%}) are test images"
            notes = (*notes, f"{several}, because every class needs one: add images")
    train, test = parts
    if limit is not None:
        train = limited(train, limit, len(class_names), seed, path)
    return Dataset(
        path.resolve().name.removesuffix(".npz"),
        train,
        test,
        class_names,
        by_class=True,
        notes=notes,
    )


def read(path, target=AS_IT_IS) -> tuple[list[Split], tuple[str, ...], tuple[str, ...]]:
    """Read all images from a path, and convert them to the properties of `target`.

    The first return value is a list with one `Split`, or with the training and test splits if the
    data defines them. The other return values are the names of the classes and notes for the user.
    If the target names the classes, the class numbers follow the order of these names, and the data
    need not contain every class.
    """
    path = Path(path)
    if not path.is_dir():
        return from_npz(path, target)
    entries, hidden = list_folder(path)
    folders = any(entry.is_dir() for entry in entries)
    if not folders and any(idx_part(entry) for entry in entries):
        return from_idx(path, entries, hidden, target)
    return from_folders(path, entries, hidden, target)
