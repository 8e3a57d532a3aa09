"""Test the contact sheet: blank where there are no images, readable with any class names."""

import matplotlib.image
import numpy as np
import pytest

from minicaps.data import Split
from minicaps.data.augmentation import Augmentation
from minicaps.data.sheet import contact_sheet


@pytest.mark.parametrize(("channels", "ink"), [(1, True), (1, False), (3, False)])
def test_missing_pictures_are_left_white(tmp_path, channels, ink):
    """Draw two classes of one image each, in rows with room for many."""
    pictures = np.full((2, channels, 20, 20), 0.5, np.float32)
    contact_sheet(tmp_path / "a.png", Split(pictures, np.arange(2)), ("a", "b"), ink=ink)
    sheet = matplotlib.image.imread(tmp_path / "a.png")[..., :3]
    grey, white = (sheet.min(axis=2) > low for low in (0.4, 0.99))
    assert white.mean() > 0.9 and (grey & ~white).any()


@pytest.mark.parametrize("changes", [Augmentation(rotate=20), Augmentation(shift=2)])
def test_a_class_without_images_stays_blank_when_augmented(tmp_path, changes):
    split = Split(np.full((2, 1, 20, 20), 0.5, np.float32), np.zeros(2, int))
    contact_sheet(tmp_path / "a.png", split, ("a", "b"), changes=changes)
    sheet = matplotlib.image.imread(tmp_path / "a.png")[:, 100:, :3].min(axis=2)  # without names
    gray = np.flatnonzero((abs(sheet - 0.5) < 0.02).any(axis=1))  # rows of pixels with images
    assert gray[-1] < 0.55 * len(sheet)


@pytest.mark.parametrize("names", [("$5", "10$ $^"), ("a" * 100, "b" * 160), ("\\frac{", "_{")])
def test_any_class_name_leaves_room_for_the_images(tmp_path, names):
    """Dollar signs start no formula, and long names do not push the images away."""
    split = Split(np.full((8, 1, 20, 20), 0.5, np.float32), np.arange(8) % 2)
    contact_sheet(tmp_path / "a.png", split, names)
    sheet = matplotlib.image.imread(tmp_path / "a.png")[..., :3].min(axis=2)
    gray = (abs(sheet - 0.5) < 0.02).any(axis=0)  # columns with pixels of the images
    assert np.flatnonzero(gray)[-1] - np.flatnonzero(gray)[0] > 0.2 * sheet.shape[1]
