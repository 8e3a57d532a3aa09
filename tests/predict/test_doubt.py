"""Tests of the classes that a network sees and of doubts, on the scale that each loss teaches."""

import pytest

from minicaps import models
from minicaps.models.losses import usual_loss
from minicaps.predict.doubt import seen_classes

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
