"""How much the choice of test images matters: intervals for one network, tests for two."""

import statistics
from math import atan, comb, cos, inf, pi, sin, sqrt

import numpy as np

Z = 1.959964  # half the width of a 95% interval of the normal distribution, in deviations


def wilson(share, count):
    """Return the 95% interval (low, high) of a share measured on `count` test images.

    The interval contains the shares p for which the measured share lies within Z standard
    deviations, √(p (1 − p) / count), of p (Wilson 1927). Unlike share ± Z deviations, it stays in
    [0, 1] and has a positive width even if no image is misclassified.
    """
    z2 = Z * Z
    middle = (share + z2 / (2 * count)) / (1 + z2 / count)
    half = Z / (1 + z2 / count) * sqrt(share * (1 - share) / count + z2 / (4 * count * count))
    return max(0.0, middle - half), min(1.0, middle + half)


def mcnemar(first, second):
    """Return the two-sided p-value of McNemar's exact test (1947).

    The arguments are the numbers of test images that only the first and only the second of two
    networks misclassifies. If both networks are equally good, each of these images is a coin toss.
    """
    tosses = first + second
    tail = sum(comb(tosses, k) for k in range(min(first, second) + 1))
    return min(1.0, 2 * tail / 2**tosses)


def paired_t(differences):
    """Return the two-sided p-value of Student's t-test for the mean of at least two differences.

    The differences are those of two kinds of networks, one per seed, and normally distributed. If
    both kinds are equally good, their mean is 0.
    """
    k, deviation = len(differences), statistics.stdev(differences)
    mean = abs(statistics.fmean(differences))
    t = mean * sqrt(k) / deviation if deviation else (inf if mean else 0.0)
    return 1 - _within(t, k - 1)


def margin(differences):
    """Return half the width of the 95% interval of the mean of at least two differences.

    It contains the means that `paired_t` would not reject at the 5% level.
    """
    k, low, high = len(differences), 0.0, 13.0  # with two seeds, t is 12.71
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, k - 1) < 0.95 else (low, middle)
    return high * statistics.stdev(differences) / sqrt(k)


def _within(t, freedom):
    """Return the probability that |Student's t| is below t ≥ 0 (Abramowitz and Stegun 26.7.3-4)."""
    angle, even = atan(t / sqrt(freedom)), freedom % 2 == 0
    term = 1.0 if even else cos(angle)
    total = term if freedom > 1 else 0.0
    for n in range(1 if even else 2, freedom - 2, 2):
        term *= cos(angle) ** 2 * n / (n + 1)
        total += term
    return sin(angle) * total if even else 2 / pi * (angle + sin(angle) * total)


def listed(wrong):
    """Write the indices of the misclassified images, (n,) booleans, as a short text."""
    return " ".join(map(str, np.flatnonzero(wrong)))


def only(first, second):
    """Count the images that only the first and only the second of two texts by `listed` has."""
    one, two = (set(text.split()) for text in (first, second))
    return len(one - two), len(two - one)
