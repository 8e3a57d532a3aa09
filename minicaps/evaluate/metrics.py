"""Metrics for a single predicted class per image: counts, rates and confidence intervals."""

import math

import numpy as np

from minicaps.data.dataset import mean_recall

Z95 = 1.959963984540054  # 97.5th percentile of the standard normal distribution


def wilson(right: int, samples: int) -> tuple[float, float]:
    """Return the 95% Wilson score interval for a proportion p = right/samples, with z = `Z95`.

        (p + z²/2n ± z·√(p(1 − p)/n + z²/4n²)) / (1 + z²/n)

    The interval contains every proportion from which `right` deviates by at most z standard
    deviations, and it lies within [0, 1]. Unlike p ± z·√(p(1 − p)/n), the Wilson interval has a
    positive width even if all predictions are correct. Wilson 1927, J. Am. Stat. Assoc. 22.
    """
    if not 0 <= right <= samples or samples < 1:
        raise ValueError(
            f"{right} of {samples} is not a rate: expected 0 to {samples} correct, of at least 1"
        )
    p, n, z = right / samples, samples, Z95
    middle = p + z * z / (2 * n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = ((middle + side * half) / (1 + z * z / n) for side in (-1, 1))
    return max(0.0, min(low, p)), min(1.0, max(high, p))  # rounding may move a bound past p, 0 or 1


def confusion_matrix(labels, answers, classes: int) -> np.ndarray:
    """Count how often images of class k are predicted as class j.

    labels, answers (n,): indices of the true and of the predicted classes. Returns an int64 array
    (classes, classes) with true classes in rows and predicted classes in columns.
    """
    pairs = np.asarray(labels) * classes + answers
    return np.bincount(pairs, minlength=classes * classes).reshape(classes, classes)


def table(class_names, *, pictures, answered, right) -> list[dict]:
    """Compute a row of metrics for each class from arrays of counts (classes,).

    pictures: number of images of each class. answered: number of predictions of each class. right:
    number of correct predictions of each class.

    Each row also contains recall = right/pictures, precision = right/answered and f1 =
    2·right/(pictures + answered). A rate with a zero denominator is None, such as the recall of a
    class without images or the precision of a class that is never predicted.
    """
    pictures, answered, right = pictures.tolist(), answered.tolist(), right.tolist()
    return [
        {
            "name": name,
            "pictures": pictures[k],
            "right": right[k],
            "answered": answered[k],
            "recall": _rate(right[k], pictures[k]),
            "precision": _rate(right[k], answered[k]),
            "f1": _rate(2 * right[k], pictures[k] + answered[k]),
        }
        for k, name in enumerate(class_names)
    ]


def balanced_accuracy(rows: list[dict]) -> float:
    """Return the mean recall of the classes that have images, from the rows of `table`."""
    return mean_recall(*(np.array([row[key] for row in rows]) for key in ("right", "pictures")))


def _rate(part, whole):
    return part / whole if whole else None


def most_confused(confusion, most: int) -> list[tuple[int, int, int]]:
    """Return the most frequent errors as up to `most` tuples (class, prediction, count)."""
    wrong = confusion - np.diag(confusion.diagonal())
    order = np.argsort(-wrong, axis=None, kind="stable")[:most]
    kinds = zip(*np.unravel_index(order, wrong.shape), wrong.ravel()[order], strict=True)
    return [(int(k), int(j), int(count)) for k, j, count in kinds if count]


def rivals(activations, labels) -> tuple[np.ndarray, np.ndarray]:
    """Return the strongest rival class (n,) for each image and the margin of the true class (n,).

    The rival is the class with the highest activation among all incorrect classes. The margin a_own
    − a_rival is negative if the rival is predicted. The activations have shape (n, J), and the
    labels have shape (n,).
    """
    rows = np.arange(len(labels))
    others = np.array(activations, dtype=np.float64)
    own = others[rows, labels].copy()
    others[rows, labels] = -np.inf
    rival = others.argmax(axis=1)
    return rival, own - others[rows, rival]


def worst(activations, labels, most: int) -> np.ndarray:
    """Return the indices of up to `most` images, starting with the worst prediction.

    Errors come first, in order of the rival's lead over the true class, starting with the largest.
    Correct predictions follow in order of increasing margin.
    """
    _, ahead = rivals(activations, labels)
    right = activations.argmax(axis=1) == labels  # on a tie, the rival may be predicted
    return np.lexsort((ahead, right))[:most]
