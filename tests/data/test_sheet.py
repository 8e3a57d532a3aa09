"""Test that the contact sheet is blank where there are no images."""

import matplotlib.image
import numpy as np
import pytest

from minicaps.data import Split
from minicaps.data.sheet import contact_sheet


@pytest.mark.parametrize(("channels", "ink"), [(1, True), (1, False), (3, False)])
def test_missing_pictures_are_left_white(tmp_path, channels, ink):
    """Draw two classes of one image each, in rows with room for many."""
    pictures = np.full((2, channels, 20, 20), 0.5, np.float32)
    contact_sheet(tmp_path / "a.png", Split(pictures, np.arange(2)), ("a", "b"), ink=ink)
    sheet = matplotlib.image.imread(tmp_path / "a.png")[..., :3]
    grey, white = (sheet.min(axis=2) > low for low in (0.4, 0.99))
    assert white.mean() > 0.9 and (grey & ~white).any()
