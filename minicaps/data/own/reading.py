"""Pictures of one's own: a folder for each class, a table of labels, four IDX files, or an .npz.

What has a plain meaning is converted, and a note says so; all else is refused, by name. No file is
passed over in silence.
"""

from pathlib import Path

from minicaps.data.dataset import Dataset, Split
from minicaps.data.images import Target
from minicaps.data.own.array_files import from_idx, from_npz, idx_part
from minicaps.data.own.class_folders import from_folders
from minicaps.data.own.files import list_folder
from minicaps.data.own.split import cut_test, limited

AS_IT_IS = Target()


def load(path, *, limit: int | None = None, seed: int = 0, size=None) -> Dataset:
    """Read a data set of one's own, and split it by `seed`.

    path: a folder with a folder for each class; a folder of pictures that may have any number of
        classes, which `minicaps.data.own.table` lists; a folder with four IDX files, named like
        those of MNIST, which say themselves what is for training and for testing; or an .npz file
        with the arrays `images` and `labels` (n,), or zeros and ones (n, classes), and perhaps
        `class_names`.
    limit: keep so many training samples, of each class in proportion.
    size: (height, width) that all pictures are fitted to; None leaves them as they are.

    Raises `DataError` for data that cannot be used, ValueError for a limit that does not fit.
    """
    path = Path(path)
    parts, class_names, notes = read(path, Target(size))
    if len(parts) == 1:
        parts = cut_test(parts[0], class_names, seed, path)
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
    """All pictures at a path, as the `Target` wants them: one `Split`, or training and test where
    the data says so; the names of the classes; and notes for the user.

    Where the target names the classes, one of them is enough, and they are numbered as there.
    """
    path = Path(path)
    if not path.is_dir():
        return from_npz(path, target)
    entries, hidden = list_folder(path)
    folders = any(entry.is_dir() for entry in entries)
    if not folders and any(idx_part(entry) for entry in entries):
        return from_idx(path, entries, hidden, target)
    return from_folders(path, entries, hidden, target)
