"""Custom data that is in memory: arrays of images and their labels."""

import numpy as np

from minicaps.data.dataset import Split
from minicaps.data.own.labels import class_flags
from minicaps.data.preprocessing import as_images
from minicaps.errors import DataError

NAME = "arrays"  # of such data, in the options of a run


def split_of(images, labels, class_names=None) -> tuple[Split, tuple[str, ...]]:
    """Make a split of images and labels in memory; return it with the names of the classes.

    images: see `minicaps.data.preprocessing.as_images`. labels: (n,) numbers or names; or, for
    images with any number of classes, (n, J) zeros and ones. class_names: in the order of the
    numbers; None takes the labels themselves, sorted. Raises `DataError` for what does not fit.
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
    """Turn labels of `count` images into what `Split` holds: class numbers, or zeros and ones.

    A label that is the name of a class, as 7 is of "7", stands for it. Where no class has a number
    as its name, integers from 0 are class numbers. Raises `DataError` for other labels.
    """
    labels, classes = _plain(labels), len(class_names)
    if labels.ndim == 2 and labels.shape[1] > 1:
        if labels.shape[1] != classes:
            raise DataError(f"the labels have {labels.shape[1]} columns for {classes} classes")
        return class_flags(labels, count, "the labels")
    if labels.shape != (count,):
        raise DataError(f"there are {count} images and labels of shape {labels.shape}")
    known = {name: k for k, name in enumerate(class_names)}
    if labels.dtype.kind in "bui" and not any(name.lstrip("-").isdigit() for name in class_names):
        labels, known = labels.astype(np.int64), {str(k): k for k in range(classes)}
    texts = [str(label) for label in labels]
    if unknown := sorted(set(texts) - known.keys()):
        raise DataError(
            f"the labels have {unknown[0]!r}, which is no class: expected {', '.join(known)}"
        )
    return np.array([known[text] for text in texts], np.int64)


def _plain(labels):
    """Labels as an array: one column as a row, bytes as text, whole floats as integers."""
    labels = np.asarray(labels)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.dtype.kind == "S":
        labels = np.char.decode(labels)
    if labels.dtype.kind == "f" and np.isfinite(labels).all() and not (labels % 1).any():
        labels = labels.astype(np.int64)
    return labels
