"""Validate the labels and class names of custom data, and convert labels to class numbers."""

import numpy as np

from minicaps.errors import DataError, escaped

MOST_CLASSES = 2**31  # larger labels are mistakes and may not fit in 64 bits


def class_numbers(labels, count, where):
    """Convert labels of shape (n,) or (n, 1) to an int64 array (n,), where n must equal `count`."""
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.shape != (count,):
        raise DataError(
            f"{where} have shape {labels.shape}, but there are {count:,} images: expected"
            f" ({count},), one class number per image"
        )
    if labels.dtype.kind not in "buif":
        raise DataError(
            f"{where} are of type {labels.dtype}: expected class numbers 0, 1, 2, …; names belong"
            " in class_names"
        )
    with np.errstate(invalid="ignore"):  # for the remainder of an infinite label
        wrong = ~((labels >= 0) & (labels < MOST_CLASSES) & (labels % 1 == 0))  # also for NaN
    if wrong.any():
        first = wrong.argmax()
        raise DataError(
            f"{where} have {labels[first]} at index {first}, but class numbers are 0, 1, 2, …"
            f" ({wrong.sum():,} of {count:,} labels are invalid)"
        )
    return labels.astype(np.int64)


def class_flags(labels, count, where):
    """Convert multi-label targets (n, J), which consist of zeros and ones, to uint8."""
    if len(labels) != count:
        raise DataError(f"{where} have {len(labels):,} rows, but there are {count:,} images")
    if labels.dtype.kind not in "buif" or not ((labels == 0) | (labels == 1)).all():
        raise DataError(
            f"{where} of shape {labels.shape} are not all 0 or 1: give 1 for each class that is"
            " present and 0 otherwise, or one class number per image"
        )
    return labels.astype(np.uint8)


def is_one_hot(flags) -> bool:
    """Return whether each row of an array of labels (n, J) has one nonzero entry."""
    return bool(((flags != 0).sum(axis=1) == 1).all())


def decoded(labels):
    """Convert an array of bytes to text, and return other arrays unchanged."""
    return np.char.decode(labels, "utf-8", "replace") if labels.dtype.kind == "S" else labels


def numbers_of_names(labels, names, where):
    """Convert text (n,) to class numbers, and return them with the array of the class names.

    names: array of the class names, or None for the sorted labels.
    """
    labels = decoded(labels)
    if names is None:
        names = np.array(sorted_names(set(labels.tolist())))
    known = {name: k for k, name in enumerate(_texts(names, 1, where))}
    if unknown := sorted(set(labels.tolist()) - known.keys()):
        raise DataError(f"{where} has the label {unknown[0]!r}, which is not one of class_names")
    if "" in known:
        raise DataError(f"{where} has an empty label: give each image the name of its class")
    return np.array([known[label] for label in labels.tolist()]), names


def names_of_classes(labels, names, where):
    """Return the class names, or the class numbers as text if `names` is None.

    Raises `DataError` if a class does not occur in the labels, given as class numbers (n,) or as
    zeros and ones (n, J).
    """
    several = labels.ndim == 2
    present = np.flatnonzero(labels.any(axis=0)) if several else np.unique(labels)
    classes = labels.shape[1] if several else int(present[-1]) + 1
    if names is not None:
        names = _texts(names, classes, where)
        classes = len(names)
    if classes > len(present):
        expected = np.arange(len(present))
        gaps = np.flatnonzero(present != expected)
        empty = int(gaps[0]) if gaps.size else len(present)
        raise DataError(
            f"{where} has no image of class {empty} ({names[empty]})"
            if names
            else f"{where} has no image of class {empty}, but labels up to {classes - 1}: number"
            " the classes 0, 1, 2, … without gaps"
        )
    if classes < 2:
        raise DataError(f"{where} has only one class: a classifier needs at least 2")
    return tuple(names or map(str, range(classes)))


def labels_of_network(labels, names, where, target):
    """Convert labels (n,) to the class numbers of the trained network described by `target`.

    Classes are matched by name. If `names` is None, the labels must already be the network's class
    numbers.
    """
    highest, known = int(labels.max()), target.classes
    if names is None:
        if highest >= len(known):
            raise DataError(
                f"{where} has label {highest}, but the network knows {len(known)} classes,"
                f" 0 to {len(known) - 1}: {', '.join(known)}"
            )
        return labels
    names, present = _texts(names, highest + 1, where), np.unique(labels)
    numbers = np.zeros(len(names), np.int64)
    numbers[present] = target.numbers([names[k] for k in present], where)
    return numbers[labels]


def flags_of_network(labels, names, where, target):
    """Convert multi-label targets (n, J) to the classes of the trained network.

    Returns an array with one row per image and one column per class of the network.
    """
    if names is None and labels.shape[1] != len(target.classes):
        raise DataError(
            f"{where} has {labels.shape[1]} columns, but the network knows {len(target.classes)}"
            f" classes: {', '.join(target.classes)}"
        )
    if names is None:
        return labels
    numbers = target.numbers(_texts(names, labels.shape[1], where), where)
    of_network = np.zeros((len(labels), len(target.classes)), np.uint8)
    of_network[:, numbers] = labels
    return of_network


def _texts(names, classes, where):
    """Convert stored class names to strings, which must be distinct and include every class."""
    if names.ndim != 1 or names.dtype.kind not in "US":
        raise DataError(
            f"class_names in {where} are {names.dtype} {names.shape}: expected a 1-D array of text"
        )
    names = decoded(names).tolist()
    if classes > len(names) or len(set(names)) < len(names):
        shown = escaped(", ".join(names))
        raise DataError(
            f"{where} has labels up to {classes - 1} and the class names {shown}: expected a"
            " distinct name for each class"
        )
    return names


def sorted_names(names) -> tuple[str, ...]:
    """Sort class names by the alphabet, or by value if all of them are whole numbers."""
    names = sorted(names)
    return tuple(sorted(names, key=int) if all(name.isdecimal() for name in names) else names)


def printable(names, where):
    """Return class names unchanged, but raise `DataError` if a name is not printable."""
    for name in names:
        if not name.isprintable():
            raise DataError(f"{where} has a class named {name!r}: give it a printable name")
    return names
