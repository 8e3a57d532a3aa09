"""The labels of one's own pictures, and the names of their classes: checked, then numbered."""

import numpy as np

from minicaps.errors import DataError

MOST_CLASSES = 2**31  # larger labels are mistakes, and may not fit 64 bits


def class_numbers(labels, count, where):
    """Labels (n,) or (n, 1) as int64, one for each of `count` pictures."""
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.shape != (count,):
        raise DataError(
            f"{where} have shape {labels.shape}, but there are {count} pictures: expected"
            f" ({count},), the number of its class for each"
        )
    if labels.dtype.kind not in "buif":
        raise DataError(
            f"{where} are of type {labels.dtype}: expected class numbers 0, 1, 2, …; names belong"
            " into class_names"
        )
    with np.errstate(invalid="ignore"):  # the remainder of an infinite label
        wrong = ~((labels >= 0) & (labels < MOST_CLASSES) & (labels % 1 == 0))  # also for NaN
    if wrong.any():
        first = wrong.argmax()
        raise DataError(
            f"{where} have {labels[first]} at index {first}: class numbers are 0, 1, 2, …"
            f" ({wrong.sum()} of {count} are not)"
        )
    return labels.astype(np.int64)


def class_flags(labels, count, where):
    """Labels (n, J) of zeros and ones, for pictures of any number of classes, as uint8."""
    if len(labels) != count:
        raise DataError(f"{where} have {len(labels)} rows, but there are {count} pictures")
    if labels.dtype.kind not in "buif" or not ((labels == 0) | (labels == 1)).all():
        raise DataError(
            f"{where} of shape {labels.shape} are not zeros and ones: 1 for each class that is"
            " present; or give one number for each picture"
        )
    return labels.astype(np.uint8)


def names_of_classes(labels, names, where):
    """The names (or numbers, for None) of the classes, after a check that labels (n,), or (n, J) of
    zeros and ones, name all."""
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
            f"{where} has no picture of class {empty} ({names[empty]})"
            if names
            else f"{where} has no picture of class {empty}, but labels up to {classes - 1}: number"
            " the classes 0, 1, 2, … without a gap"
        )
    if classes < 2:
        raise DataError(f"{where} has one class only: a classifier needs at least 2")
    return tuple(names or map(str, range(classes)))


def labels_of_network(labels, names, where, target):
    """Labels (n,) in the numbers of the trained network that `target` is for, by the names of their
    classes; for None they are its numbers already."""
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
    """As `labels_of_network`, of labels (n, J) of zeros and ones; (n, classes of the network)."""
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
    """Stored names as a list of str, each once, at least one for each class."""
    if names.ndim != 1 or names.dtype.kind not in "US":
        raise DataError(
            f"class_names in {where} are {names.dtype} {names.shape}: expected one row of text"
        )
    names = [n.decode("utf-8", "replace") if isinstance(n, bytes) else str(n) for n in names]
    if classes > len(names) or len(set(names)) < len(names):
        raise DataError(
            f"{where} has labels up to {classes - 1} and the class names {', '.join(names)}:"
            " expected one name, its own, for each class"
        )
    return names


def printable(names, where):
    """The names of classes themselves; `DataError` for one that cannot be shown."""
    for name in names:
        if not name.isprintable():
            raise DataError(f"{where} has a class with the name {name!r}: give it a readable one")
    return names
