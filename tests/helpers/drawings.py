"""Checks of figures that were drawn."""

import matplotlib.image
import numpy as np


def pixels(path):
    """Return the figure in a file (H, W, 3), which must not be empty or cut off at its edges."""
    picture = matplotlib.image.imread(path)
    picture = picture[..., :3]
    assert min(picture.shape[:2]) > 250
    assert picture.std() > 0.05
    for edge in (picture[0], picture[-1], picture[:, 0], picture[:, -1]):
        assert (edge == 1).all()  # nothing is cut off
    return picture


def contains(picture, colour):
    """Return True if some pixels have approximately the color #rrggbb."""
    wanted = np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    return (abs(picture - wanted).max(axis=-1) < 0.02).sum() > 20
