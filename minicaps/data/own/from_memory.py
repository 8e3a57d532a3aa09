"""Convert custom data in memory, given as arrays of images and labels."""

import numpy as np

from minicaps.data.dataset import Split
from minicaps.data.own.labels import class_flags
from minicaps.data.preprocessing import as_images
from minicaps.errors import DataError

NAME = "arrays"  # name of data in memory in the options of a run


def split_of(images, labels, class_names=None) -> tuple[Split, tuple[str, ...]]:
    """Make a `Split` from images and labels in memory.

    Parameters
    ----------
    images : array; see `minicaps.data.preprocessing.as_images`
    labels : numbers or names (n,), or zeros and ones (n, J) for multi-label data
    class_names : names in the order of the class numbers, or None for the sorted labels

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
    several = labels.ndim == 2 and labels.shape[1] > 1
    if class_names is None:
        class_names = range(labels.shape[1]) if several else np.unique(labels).tolist()
    names = tuple(map(str, class_names))
    return Split(images, targets(labels, len(images), names)), names


def targets(labels, count, class_names) -> np.ndarray:
    """Convert the labels of `count` images to the format used by `Split`.

    Labels are matched with class names as text, so the label 7 refers to the class named "7". If no
    class name is a number, integer labels are taken as class numbers, starting from 0. Raises
    `DataError` for other labels.
    """
    labels, classes = _plain(labels), len(class_names)
    if labels.ndim == 2 and labels.shape[1] > 1:
        if labels.shape[1] != classes:
            raise DataError(
                f"the labels have {labels.shape[1]} columns: expected {classes}, one per class"
            )
        return class_flags(labels, count, "the labels")
    if labels.shape != (count,):
        raise DataError(f"there are {count} images, but labels of shape {labels.shape}")
    known = {name: k for k, name in enumerate(class_names)}
    if labels.dtype.kind in "bui" and not any(name.lstrip("-").isdigit() for name in class_names):
        labels, known = labels.astype(np.int64), {str(k): k for k in range(classes)}
    texts = [str(label) for label in labels]
    if unknown := sorted(set(texts) - known.keys()):
        raise DataError(
            f"the labels contain {unknown[0]!r}, which is not a class: expected {', '.join(known)}"
        )
    return np.array([known[text] for text in texts], np.int64)


def _plain(labels):
    """Convert labels to a plain array.

    A column becomes an array (n,), bytes become text, and floats without fractional parts become
    integers.
    """
    labels = np.asarray(labels)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.dtype.kind == "S":
        labels = np.char.decode(labels)
    if labels.dtype.kind == "f" and np.isfinite(labels).all() and not (labels % 1).any():
        labels = labels.astype(np.int64)
    return labels
