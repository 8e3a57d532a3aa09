"""Tests of the classes that a network sees and of doubts, on the scale that each loss teaches."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from minicaps import models
from minicaps.models.losses import usual_loss
from minicaps.models.rivals import MOST, RIVAL, fitted_rival
from minicaps.predict.doubt import limit_of, seen_classes
from minicaps.runs.run import open_run

OLD_RUN = Path(__file__).parents[1] / "net/runs/matrix-capsnet"
NAMES = "abcde"
NONE = "none of the classes is seen (no {})"
SEVERAL = "several classes are seen ({}): {}"
CLOSE = "activation within 10% of the highest"


def doubt(name, scores, loss=None, **options):
    """Return what a network trained with a loss sees if it gives these scores, highest first."""
    model = models.build(name, (1, 28, 28), 5, **options)
    model.loss = loss or usual_loss(name)
    padded = dict(zip(NAMES, [*scores, 0, 0, 0, 0], strict=False))
    seen, reason = seen_classes(model, padded)
    return "".join(seen), reason


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ((0.3, 0.05, 0.02), ("a", None)),  # as after three epochs
        ((0.97, 0.03), ("a", None)),
        ((1e-6, 4e-7), ("a", None)),
        ((0.655, 0.606, 0.603), ("abc", SEVERAL.format(CLOSE, "a, b, c"))),  # after one epoch
        ((0.3, 0.28, 0.1), ("ab", SEVERAL.format(CLOSE, "a, b"))),
        ((0.95, 0.71, 0.67), ("a", None)),  # all above one half
        ((0.9, 0.9, 0.9, 0.9), ("abcd", SEVERAL.format(CLOSE, "a, b, c and 1 more"))),
        ((0,), ("", NONE.format(CLOSE.replace(" ", " is ", 1)))),
    ],
)
def test_the_spread_loss_compares_activations(scores, expected):
    assert doubt("matrix-capsnet", scores, preset="small") == expected


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ((0.51, 0.49), ("a", None)),
        ((0.3, 0.05, 0.02), ("", NONE.format("length is above 0.5"))),  # m⁺ is 0.9, m⁻ is 0.1
        ((0.9, 0.6), ("ab", SEVERAL.format("length above 0.5", "a, b"))),
    ],
)
def test_the_margin_loss_teaches_lengths(scores, expected):
    assert doubt("capsule-cnn", scores) == expected
    assert doubt("capsule-cnn", (0.3, 0.05, 0.02), loss="spread") == ("a", None)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ((0.3, 0.05, 0.02), ("a", None)),
        ((0.3, 0.2, 0.1, 0.1), ("", NONE.format("share is above 0.5"))),
        ((0,), ("", NONE.format("share is above 0.5"))),
    ],
)
def test_the_cross_entropy_teaches_shares(scores, expected):
    assert doubt("capsule-cnn", scores, loss="cross-entropy") == expected


@pytest.mark.parametrize(
    ("scores", "expected"),
    [((0.6, 0.4), ("a", None)), ((0.4, 0.3, 0.3), ("", NONE.format("probability is above 0.5")))],
)
def test_logits_become_probabilities(scores, expected):
    assert doubt("dense-cnn", scores, preset="small") == expected


def test_images_of_several_classes_raise_no_doubt():
    model = models.build("capsule-cnn", (1, 28, 28), 2)
    model.loss, model.multi = "margin", True
    for scores, seen in (((0.9, 0.6), ["a", "b"]), ((0.4, 0.3), [])):
        assert seen_classes(model, dict(zip(NAMES, scores, strict=False))) == (seen, None)


def ratio_learned(ratios, right):
    """Return what is learned from images with these ratios of the two highest activations."""
    scores = np.array([[0.4, 0.4 * ratio, 0] for ratio in ratios])
    return fitted_rival(scores, np.where(right, 0, 2))


def test_the_distance_of_rivals_is_learned_from_validation_images():
    """Of the four closest, three are wrong; doubting any other number gains less than two."""
    ratios, right = [0.99, 0.2, 0.9, 0.8, 0.7, 0.6], [False, False, True, False, False, True]
    assert ratio_learned(ratios, right) == pytest.approx(0.7)
    assert ratio_learned(ratios, right) < 0.7  # an image like the fourth is in doubt
    assert ratio_learned([0.5] * 3, [True, False, False]) == pytest.approx(0.5)
    assert ratio_learned([0.5] * 3, [False, True, True]) == MOST  # equal ratios stay together
    assert ratio_learned([0.9, 0.8], [True, True]) == MOST
    assert ratio_learned([1.0, 0.8], [False, True]) == MOST
    assert ratio_learned([0.9, 0.8], [False, False]) == pytest.approx(0.8)
    assert fitted_rival(np.zeros((2, 3)), np.array([0, 1])) == MOST
    assert fitted_rival(np.ones((2, 1)), np.array([0, 0])) == MOST
    assert fitted_rival(np.ones((0, 3)), np.array([], int)) == MOST


def test_a_learned_distance_decides_what_is_seen():
    model = models.build("matrix-capsnet", (1, 28, 28), 5, preset="small")
    model.loss = "spread"
    scores = {"a": 0.5, "b": 0.47, "c": 0.1}
    assert seen_classes(model, scores, MOST) == (["a"], None)
    close = "activation within 0.0001% of the highest"
    assert seen_classes(model, {"a": 0.5, "b": 0.5}, MOST)[1] == SEVERAL.format(close, "a, b")
    assert limit_of(model, scores, 0.8) == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("text", "rival"),
    [
        (json.dumps({"rival": 0.97}), 0.97),
        (json.dumps({"rival": "much"}), RIVAL),
        (json.dumps({"rival": None}), RIVAL),
        (json.dumps([]), RIVAL),
        ("{", RIVAL),
        (None, RIVAL),
    ],
)
def test_a_run_knows_the_distance_of_rivals(tmp_path, text, rival):
    """Runs of older versions, unfinished and damaged ones use that of all networks."""
    shutil.copy(OLD_RUN / "best.npz", tmp_path)
    if text is not None:
        (tmp_path / "summary.json").write_text(text)
    assert open_run(tmp_path, "cpu").rival == rival
