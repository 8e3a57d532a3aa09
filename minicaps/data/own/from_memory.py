"""Convert custom data in memory, given as arrays of images and labels."""

import numpy as np

from minicaps.data.dataset import Split, count_classes
from minicaps.data.own.arrays import plain_array
from minicaps.data.own.labels import MOST_CLASSES, class_flags, decoded, is_one_hot, printable
from minicaps.data.preprocessing import as_images
from minicaps.errors import DataError

NAME = "arrays"  # name of data in memory in the options of a run


def split_of(
    images, labels, class_names=None, *, multi_label=False
) -> tuple[Split, tuple[str, ...]]:
    """Make a `Split` from images and labels in memory.

    Parameters
    ----------
    images : array; see `minicaps.data.preprocessing.as_images`
    labels : integers or names (n,), or zeros and ones (n, J), which are multi-label data unless
        each row has a single 1
    class_names : names in the order of the class numbers, or None for the sorted labels. If all
        are integers, an integer label stands for its name, not for its place.
    multi_label : whether zeros and ones are multi-label data even if each row has a single 1

    Returns
    -------
    The `Split` and the names of the classes.

    Raises
    ------
    DataError
        If images, labels and class names do not match or cannot be used.
    """
    images, labels = as_images(images), _plain(labels)
    if len(images) == 0:
        raise DataError("there are no images")
    multi = labels.ndim == 2 and (multi_label or not is_one_hot(labels))
    if multi_label and not multi:
        raise DataError("multi_label needs zeros and ones (n, classes), not one label per image")
    if class_names is None:
        class_names = range(labels.shape[1]) if labels.ndim == 2 else np.unique(labels).tolist()
        class_names = map(str, class_names)
    names = _checked_names(class_names)
    split = Split(images, targets(labels, len(images), names, multi=multi))
    counts = count_classes(split.labels, len(names))
    if counts.min() == 0:
        raise DataError(f"there is no image of class {names[counts.argmin()]!r}: leave it out")
    return split, names


def targets(labels, count, class_names, *, multi=False) -> np.ndarray:
    """Convert the labels of `count` images to the format used by `Split`.

    Text stands for the class of that name. If all class names are integers, so does an integer;
    otherwise an integer is a class number, starting from 0. Zeros and ones (n, J) are multi-label
    data if `multi`, and otherwise must have a single 1 in each row. Raises `DataError` for other
    labels.
    """
    labels, classes = _plain(labels), len(class_names)
    if labels.shape != ((count, classes) if labels.ndim == 2 else (count,)):
        raise DataError(
            f"there are {count} images and {classes} classes, but labels of shape {labels.shape}"
        )
    if labels.ndim == 2:
        flags = class_flags(labels, count, "the labels")
        if not multi and not is_one_hot(flags):
            raise DataError("some images have several labels or none, but the network expects one")
        return flags if multi else flags.argmax(axis=1)
    if multi:
        raise DataError(f"the network is multi-label: expected zeros and ones ({count}, {classes})")
    known = {name: k for k, name in enumerate(class_names)}
    if labels.dtype.kind == "b" and not known.keys() & {"True", "False"}:
        labels = labels.astype(np.int64)
    if labels.dtype.kind in "iu" and not all(map(_is_integer, class_names)):
        known = {str(k): k for k in range(classes)}
    texts = list(map(str, labels.tolist()))
    if unknown := sorted(set(texts) - known.keys()):
        raise DataError(
            f"the labels contain {unknown[0]!r}, which is not a class: expected {', '.join(known)}"
        )
    return np.array([known[text] for text in texts], np.int64)


def _is_integer(name):
    return name.removeprefix("-").isdecimal()


def _checked_names(names):
    """Return class names as a tuple of different, printable texts; at least two."""
    names = list(names) if not isinstance(names, str | bytes) and np.iterable(names) else None
    if names is None or not all(isinstance(name, str) and name.strip() for name in names):
        raise DataError("class_names must be a sequence of nonempty texts, one for each class")
    if len(set(names)) < max(2, len(names)):
        raise DataError(f"a classifier needs at least 2 classes with different names, not {names}")
    return tuple(printable(names, "class_names"))


def _plain(labels):
    """Convert labels to an array of integers or text, (n,), or of numbers (n, J).

    A column becomes an array (n,). Raises `DataError` for labels that are missing or ambiguous.
    """
    labels = plain_array(
        labels,
        masked="the labels are a masked array: leave out the images without a label",
        ragged="the labels have different lengths: expected one for each image",
    )
    if labels.ndim not in (1, 2):
        raise DataError(f"the labels have shape {labels.shape}: expected one for each image")
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.dtype.kind == "O":
        kinds = {str if isinstance(x, str | bytes) else type(x) for x in labels.ravel()}
        if kinds != {str} and not all(issubclass(kind, int | np.integer) for kind in kinds):
            raise DataError("the labels mix types or are missing: give integers or text only")
        labels = np.array([x.decode() if isinstance(x, bytes) else x for x in labels.tolist()])
    labels = decoded(labels)
    if labels.dtype.kind == "f":
        if not (abs(labels) < MOST_CLASSES).all() or (labels % 1).any():  # also for NaN
            raise DataError("some labels are not whole numbers: a class is an integer or a name")
        labels = labels.astype(np.int64)
    if labels.dtype.kind not in "buiU":
        raise DataError(f"the labels are of type {labels.dtype}: expected integers or text")
    return labels.astype(np.int64) if labels.dtype.kind == "b" and labels.ndim == 2 else labels
