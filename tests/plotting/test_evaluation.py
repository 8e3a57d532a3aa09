"""Test the figures of an evaluation: any number of classes and images, with nothing cut off."""

import importlib

import numpy as np
import pytest
from drawings import contains, pixels
from thinning import thinned, thinned_rows

from minicaps import plotting
from minicaps.plotting import canvas
from minicaps.plotting.confusion import others_together

pytestmark = pytest.mark.filterwarnings("error")


@pytest.mark.parametrize("classes", thinned([2, 10, 24, 25, 100], 2))
def test_confusion_shows_right_answers_and_wrong_ones(tmp_path, classes):
    counts = np.diag(np.full(classes, 50))
    counts[-1] = np.roll(counts[-1], 1)  # the last class is predicted as the first
    names = [f"the class with the number {k}" for k in range(classes)]
    plotting.confusion(counts, names, tmp_path / "c.png")
    picture = pixels(tmp_path / "c.png")
    assert contains(picture, canvas.BLUE) and contains(picture, canvas.ORANGE)


def test_of_many_classes_the_most_confused_are_drawn():
    counts = np.diag(np.full(50, 9))
    counts[3, 40], counts[40, 3], counts[7, 3] = 5, 4, 1
    gathered, names = others_together(counts, [str(k) for k in range(50)])
    assert names == [*map(str, range(22)), "40", "27 others"]
    assert gathered.shape == (24, 24) and gathered.sum() == counts.sum()
    row = gathered[names.index("3")]
    assert row[names.index("40")] == 5 and row[names.index("3")] == 9
    assert gathered[-1, -1] == 27 * 9


@pytest.mark.parametrize(("shift", "colour"), thinned_rows([(0, canvas.BLUE), (1, canvas.ORANGE)]))
def test_confusion_has_one_colour_for_one_kind(tmp_path, shift, colour):
    plotting.confusion(np.roll(np.diag([5, 5, 5]), shift, axis=1), "abc", tmp_path / "c.png")
    picture = pixels(tmp_path / "c.png")
    for other in (canvas.BLUE, canvas.ORANGE):
        assert contains(picture, other) == (other == colour)


@pytest.mark.slow
def test_one_wrong_answer_of_a_thousand_can_be_seen(tmp_path):
    counts = np.diag([1000, 1000, 1000])
    names = ["a", "b", "c"]
    plotting.confusion(counts, names, tmp_path / "none.png")
    counts[0, 2] = 1
    plotting.confusion(counts, names, tmp_path / "one.png")
    changed = abs(pixels(tmp_path / "one.png") - pixels(tmp_path / "none.png")).max(axis=-1)
    assert (changed[: len(changed) // 2] > 0.01).sum() > 5000  # a cell and the title


def test_confusion_without_a_picture_of_some_class_and_with_large_counts(tmp_path):
    counts = np.array([[123_456, 7], [0, 0]])
    plotting.confusion(counts, ["$a$", "b_$"], tmp_path / "c.png")  # a $ starts no formula
    assert contains(pixels(tmp_path / "c.png"), canvas.BLUE)


@pytest.mark.parametrize(
    ("shape", "number", "wrong", "decoder"),
    thinned_rows(
        [
            ((1, 28, 28), 10, 4, True),
            ((1, 28, 28), 10, 0, False),
            ((3, 40, 56), 3, 0, True),
            ((3, 200, 20), 1, 1, True),
            ((1, 1, 90), 1, 1, False),
        ]
    ),
)
def test_worst(tmp_path, shape, number, wrong, decoder):
    images, *drawn = np.random.default_rng(0).random((3, number, *shape))
    captions = [("a rather lo…$me: 1.00", f"b_$: {k / 10}") for k in range(number)]
    marked = np.arange(number) < wrong
    plotting.worst(images, drawn if decoder else None, captions, marked, tmp_path / "w.png")
    picture = pixels(tmp_path / "w.png")
    if shape[0] == 1:  # only the text is colored
        assert contains(picture, canvas.ORANGE) == bool(wrong)


@pytest.mark.parametrize("name", ["confusion", "members"])
def test_the_row_of_images_is_named_as_in_the_title(name, monkeypatch):
    figures, module = [], importlib.import_module(f"minicaps.plotting.{name}")
    monkeypatch.setattr(module, "save", lambda figure, path: figures.append(figure))
    images = np.random.default_rng(0).random((2, 1, 9, 9))
    if name == "confusion":
        plotting.worst(images, None, [("a", "b"), ("a", "c")], np.ones(2, bool), "w.png")
    else:
        flags = np.eye(2, dtype=bool)
        plotting.members(images, None, flags, flags, ["a", "b"], "w.png")
    assert "image" in figures[0].get_suptitle()
    assert figures[0].axes[0].get_ylabel() == "image"
