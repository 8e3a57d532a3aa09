"""Baseline classifiers of pixels: as good as references, within their limits."""

import custom_sets
import numpy as np
import pytest

from minicaps.data import Split, baselines, load
from minicaps.errors import Interrupted


def split_of(images, labels):
    return Split(np.asarray(images, dtype=np.float32), np.asarray(labels))


def apart(shape, count=40, seed=0):
    """Return a split of two classes, noise that is a little brighter in one."""
    rng, labels = np.random.default_rng(seed), np.arange(count) % 2
    return split_of(0.5 * rng.random((count, *shape)) + 0.3 * labels[:, None, None, None], labels)


def without_time(found):
    return {key: value for key, value in found.items() if key != "seconds"}


@pytest.mark.parametrize("name", ["few", pytest.param("letters", marks=pytest.mark.slow)])
def test_the_linear_classifier_is_as_good_as_that_of_scikit_learn(name, tmp_path):
    data = load(str(custom_sets.make(name, tmp_path)), size=28)
    found = baselines.linear(data.train, data.test, seconds=60)
    accuracy, balanced = custom_sets.baseline(data)
    assert found["complete"]
    assert abs(found["accuracy"] - accuracy) <= 0.031
    assert abs(found["balanced_accuracy"] - balanced) <= 0.031


def test_the_linear_classifier_depends_on_images_and_seed_only():
    train, test = apart((1, 8, 8)), apart((1, 8, 8), seed=1)
    found = [without_time(baselines.linear(train, test, seed=seed)) for seed in (0, 0)]
    assert found[0] == found[1]
    assert found[0]["accuracy"] == 1 and found[0]["complete"]


def test_without_time_the_linear_classifier_is_still_evaluated():
    found = baselines.linear(apart((1, 8, 8)), apart((1, 8, 8), seed=1), seconds=1e-9)
    assert not found["complete"] and found["accuracy"] > 0.5
    said = baselines.line({"majority": {"class": "a", "accuracy": 0.5}, "linear": found})
    assert said.endswith(f"(balanced {found['balanced_accuracy']:.2%}, stopped early)")


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ((1, 28, 20), [1, 28, 20]),
        ((1, 64, 48), [1, 32, 24]),
        ((3, 64, 48), [3, 21, 16]),
        ((1, 300, 3), [1, 32, 1]),
    ],
)
def test_images_are_reduced_for_the_linear_classifier(shape, size):
    train = apart(shape, 12)
    assert baselines.linear(train, train)["size"] == size


def test_gray_images_stored_as_colors_count_as_gray():
    gray = apart((1, 8, 8))
    colors = Split(np.repeat(gray.images, 3, axis=1), gray.labels)
    assert without_time(baselines.linear(colors, colors)) == without_time(
        baselines.linear(gray, gray)
    )


def test_many_images_are_sampled_by_class(monkeypatch):
    monkeypatch.setattr(baselines, "IMAGES", 20)
    assert baselines.linear(apart((1, 4, 4), 30), apart((1, 4, 4), 30))["images"] == 20


def test_a_class_without_test_images_does_not_count_for_the_balance():
    """The classifier knows only brightness, so class 2, like class 0, is never predicted."""
    train = split_of(np.repeat([[0.0], [1.0]], 20, axis=0)[:, :, None, None], [0] * 20 + [1] * 20)
    test = split_of(np.array([0.0, 0, 0, 1])[:, None, None, None], [0, 0, 2, 1])
    found = baselines.linear(train, test)
    assert (found["accuracy"], found["balanced_accuracy"]) == (0.75, pytest.approx(2 / 3))


def test_the_linear_classifier_stops_when_asked():
    with pytest.raises(Interrupted):
        baselines.linear(apart((1, 4, 4)), apart((1, 4, 4)), stop=True)


def test_the_majority_is_that_of_the_training_images():
    test = apart((1, 2, 2), 10)
    assert baselines.majority(np.array([0, 1, 1]), test) == (1, 0.5)


def test_constant_images_are_no_error():
    split = split_of(np.zeros((8, 1, 3, 3)), [0, 0, 0, 0, 0, 0, 1, 1])
    assert baselines.linear(split, split)["accuracy"] == 0.75
