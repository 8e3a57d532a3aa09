"""Test the figures of a run: any history and any images, no warnings, and nothing cut off."""

import numpy as np
import pytest
from drawings import contains, pixels
from thinning import thinned_rows

from minicaps import plotting
from minicaps.plotting import canvas

pytestmark = pytest.mark.filterwarnings("error")


def row(epoch, accuracy, validation):
    parts = ("train", "validation") if validation else ("train",)
    measured = {f"{part}_{what}": accuracy for part in parts for what in ("loss", "accuracy")}
    return {"epoch": epoch, **measured}


@pytest.mark.parametrize(("epochs", "accuracy"), thinned_rows([(1, 0.0), (2, 1.0), (30, 0.7)]))
def test_curves(tmp_path, epochs, accuracy):
    for validation in (True, False):
        path = tmp_path / f"{validation}.png"
        rows = [row(k + 1, accuracy, validation) for k in range(epochs)]
        plotting.curves(rows, path)
        # of equal curves, the last one covers the other
        assert contains(pixels(path), canvas.ORANGE) == validation
        assert contains(pixels(path), canvas.BLUE)  # at least in the legend


@pytest.mark.parametrize(
    ("channels", "classes"), thinned_rows([(1, 10), (2, 2), (3, 26)], ((2, 2),))
)
def test_reconstructions(tmp_path, channels, classes):
    random = np.random.default_rng(0)
    images, drawn = random.random((2, classes, channels, 20, 24))
    names = [chr(ord("a") + k) for k in range(classes)]
    plotting.reconstructions(images, drawn, names, names, classes, tmp_path / "right.png")
    wrong = ["other", *names[1:]]
    plotting.reconstructions(images, drawn, names, wrong, 100, tmp_path / "wrong.png")
    if channels < 3:  # only the text is colored
        assert not contains(pixels(tmp_path / "right.png"), canvas.ORANGE)
    assert contains(pixels(tmp_path / "wrong.png"), canvas.ORANGE)
