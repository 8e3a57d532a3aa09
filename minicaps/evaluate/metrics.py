"""How well one answer for each picture fits its one class: counts, rates, intervals."""

import math

import numpy as np

Z95 = 1.959963984540054  # standard deviations: a normal number lies within ± of them in 95 of 100


def wilson(right: int, samples: int) -> tuple[float, float]:
    """The score interval of a rate p = right/samples, of 95 %, with z = `Z95`; within [0, 1].

        (p + z²/2n ± z·√(p(1 − p)/n + z²/4n²)) / (1 + z²/n)

    All rates from which `right` is at most z standard deviations away. Unlike p ± z·√(p(1 − p)/n)
    it says something where all answers are right. Wilson 1927, J. Am. Stat. Assoc. 22.
    """
    if not 0 <= right <= samples or samples < 1:
        raise ValueError(f"{right} of {samples} is no rate: expected 0 to {samples}, of at least 1")
    p, n, z = right / samples, samples, Z95
    middle = p + z * z / (2 * n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = ((middle + side * half) / (1 + z * z / n) for side in (-1, 1))
    return max(0.0, min(low, p)), min(1.0, max(high, p))  # rounding may pass an end


def confusion_matrix(labels, answers, classes: int) -> np.ndarray:
    """How often class k (row) was taken for class j (column): (classes, classes) int64.

    labels, answers (n,): class numbers.
    """
    pairs = np.asarray(labels) * classes + answers
    return np.bincount(pairs, minlength=classes * classes).reshape(classes, classes)


def table(class_names, *, pictures, answered, right) -> list[dict]:
    """A row for each class: name, `pictures` of it, `right` ones, how often it was `answered`,
    recall = right/pictures, precision = right/answered, f1 = 2·right/(pictures + answered).

    A rate of nothing is None: recall of a class without pictures, precision of one never answered.
    The counts (classes,) are arrays.
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


def _rate(part, whole):
    return part / whole if whole else None


def most_confused(confusion, most: int) -> list[tuple[int, int, int]]:
    """(class, answer, count) of up to `most` kinds of wrong answers, the most frequent first."""
    wrong = confusion - np.diag(confusion.diagonal())
    order = np.argsort(-wrong, axis=None, kind="stable")[:most]
    kinds = zip(*np.unravel_index(order, wrong.shape), wrong.ravel()[order], strict=True)
    return [(int(k), int(j), int(count)) for k, j, count in kinds if count]


def rivals(activations, labels) -> tuple[np.ndarray, np.ndarray]:
    """The strongest class of each picture beside its own (n,), and how far its own is ahead (n,):
    a_own − a_rival, negative where the rival is the answer. activations (n, J), labels (n,)."""
    rows = np.arange(len(labels))
    others = np.array(activations, dtype=np.float64)
    own = others[rows, labels].copy()
    others[rows, labels] = -np.inf
    rival = others.argmax(axis=1)
    return rival, own - others[rows, rival]


def worst(activations, labels, most: int) -> np.ndarray:
    """Indices of up to `most` pictures, those with their own class furthest behind the answer
    first; after all wrong answers the right ones that were the closest."""
    _, ahead = rivals(activations, labels)
    right = activations.argmax(axis=1) == labels  # an equal rival can be the answer
    return np.lexsort((ahead, right))[:most]
