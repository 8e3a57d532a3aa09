"""Test counts and rates against values computed by hand and by scikit-learn."""

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from minicaps.evaluate import metrics

NAMES = ("cat", "dog", "eel", "fox")
LABELS = np.array([0, 0, 0, 1, 1, 2, 2, 2, 2, 2])
ANSWERS = np.array([0, 1, 1, 1, 0, 2, 2, 2, 1, 2])  # the fox is neither present nor predicted


@pytest.mark.parametrize(
    ("right", "samples", "low", "high"),
    [
        # By the formula of Brown, Cai and DasGupta, 8 of 10 gives (0.8 + 0.19207 ± 0.31362)/1.38415
        (8, 10, 0.49016, 0.94332),
        (0, 1, 0, 0.79345),  # z²/(1 + z²)
        (1, 1, 0.20655, 1),
        (10, 10, 0.72247, 1),  # 1/(1 + z²/10)
        (9990, 10_000, 0.998160, 0.999457),
    ],
)
def test_wilson_by_hand(right, samples, low, high):
    found = metrics.wilson(right, samples)
    assert found == pytest.approx((low, high), abs=5e-6)
    assert 0 <= found[0] <= right / samples <= found[1] <= 1


def test_wilson_holds_the_rates_from_which_the_count_is_z_deviations_away():
    for right, n in ((3, 17), (50, 120), (1, 1000)):
        for p in metrics.wilson(right, n):
            assert abs(right / n - p) == pytest.approx(metrics.Z95 * np.sqrt(p * (1 - p) / n))


@pytest.mark.parametrize(("right", "samples"), [(0, 0), (3, 2), (-1, 2)])
def test_wilson_refuses_what_is_no_rate(right, samples):
    with pytest.raises(ValueError, match=f"{right} of {samples} is not a rate"):
        metrics.wilson(right, samples)


def test_confusion_matrix_is_scikit_learns():
    found = metrics.confusion_matrix(LABELS, ANSWERS, 4)
    assert np.array_equal(found, confusion_matrix(LABELS, ANSWERS, labels=range(4)))
    assert found.dtype == np.int64
    random = np.random.default_rng(0)
    labels, answers = random.integers(0, 37, (2, 5000))
    assert np.array_equal(
        metrics.confusion_matrix(labels, answers, 37), confusion_matrix(labels, answers)
    )


def test_class_table_is_scikit_learns():
    counts = metrics.confusion_matrix(LABELS, ANSWERS, 4)
    sums = {"pictures": counts.sum(axis=1), "answered": counts.sum(axis=0)}
    table = metrics.table(NAMES, right=counts.diagonal(), **sums)
    assert [row["name"] for row in table] == list(NAMES)
    assert [row["pictures"] for row in table] == [3, 2, 5, 0]
    assert [row["right"] for row in table] == [1, 1, 4, 0]
    assert [row["answered"] for row in table] == [2, 4, 4, 0]
    assert all(type(row[key]) is int for row in table for key in ("pictures", "right", "answered"))
    wanted = precision_recall_fscore_support(LABELS, ANSWERS, labels=range(4), zero_division=np.nan)
    for key, column in zip(("precision", "recall", "f1"), wanted, strict=False):
        found = [np.nan if row[key] is None else row[key] for row in table]
        np.testing.assert_allclose(found, column)
    assert table[3]["recall"] is table[3]["precision"] is table[3]["f1"] is None


def test_the_most_frequent_confusions_come_first():
    confusion = np.array([[9, 0, 3], [5, 9, 3], [0, 1, 9]])
    assert metrics.most_confused(confusion, 3) == [(1, 0, 5), (0, 2, 3), (1, 2, 3)]
    assert metrics.most_confused(confusion, 9)[3:] == [(2, 1, 1)]  # no kind with count 0
    assert metrics.most_confused(np.diag([3, 4]), 5) == []


def test_rivals_and_the_worst_by_hand():
    activations = np.array(
        [
            [0.9, 0.1, 0.2],  # class 0: correct by far
            [0.6, 0.5, 0.1],  # class 1: wrong by 0.1
            [0.1, 0.9, 0.2],  # class 2: wrong by 0.7
            [0.3, 0.1, 0.4],  # class 2: correct by 0.1
            [0.5, 0.5, 0.1],  # class 1: ties with the prediction 0, so wrong
        ],
        np.float32,
    )
    labels = np.array([0, 1, 2, 2, 1])
    rival, ahead = metrics.rivals(activations, labels)
    assert rival.tolist() == [2, 0, 1, 0, 0]
    np.testing.assert_allclose(ahead, [0.7, -0.1, -0.7, 0.1, 0], atol=1e-7)
    assert metrics.worst(activations, labels, 10).tolist() == [2, 1, 4, 3, 0]
    assert metrics.worst(activations, labels, 2).tolist() == [2, 1]
    assert activations[0, 0] == np.float32(0.9)  # the argument is unchanged


def test_where_the_answer_is_wrong_it_is_the_rival():
    random = np.random.default_rng(0)
    activations = random.integers(0, 3, (500, 4)).astype(np.float64)  # with many ties
    labels = random.integers(0, 4, 500)
    answers = activations.argmax(axis=1)
    wrong = answers != labels
    assert np.array_equal(metrics.rivals(activations, labels)[0][wrong], answers[wrong])
