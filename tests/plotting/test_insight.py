"""Test the figures of predict and plot: any grid, any number of classes, literal names."""

import numpy as np
import pytest
from drawings import contains, pixels
from thinning import thinned, thinned_rows

from minicaps import plotting
from minicaps.models.sizes import ChildrenGrid
from minicaps.plotting.canvas import BLUE
from minicaps.plotting.coupling_maps import SHADES, ends_of_scale

pytestmark = pytest.mark.filterwarnings("error")
RNG = np.random.default_rng(0)
GRID = ChildrenGrid(3, 5, 2, 4.0, 4)


def ranking(classes):
    scores = np.sort(RNG.random(classes))[::-1]
    return [(f"class {k} $x$" + k * "i", score) for k, score in enumerate(scores)]


@pytest.mark.parametrize(
    ("channels", "classes"), thinned_rows([(1, 10), (3, 2), (1, 26), (3, 100)])
)
def test_a_prediction(tmp_path, channels, classes):
    picture = RNG.random((channels, 20, 32))
    shares = RNG.dirichlet(np.ones(classes), 15)[:, 0].reshape(3, 5)
    path = tmp_path / "a.png"
    plotting.prediction(
        path,
        picture,
        ranking(classes),
        "length",
        0.5,
        "Prediction: $7",
        shares=(shares, GRID, 1 / classes),
        drawn=picture,
    )
    assert contains(pixels(path), BLUE)


def test_a_prediction_without_capsules(tmp_path):
    plotting.prediction(
        tmp_path / "a.png", np.zeros((1, 8, 8)), ranking(3), "probability", 0.9, "unsure: none"
    )
    pixels(tmp_path / "a.png")


@pytest.mark.parametrize("iterations", thinned([1, 3, 40], (3,)))
@pytest.mark.parametrize("columns", thinned([2, 3]))
def test_couplings(tmp_path, iterations, columns):
    maps = RNG.random((iterations, 3, 5))
    path = tmp_path / "a.png"
    plotting.couplings(
        path,
        np.zeros((1, 20, 32)),
        [(f"parent {k}", maps, 0.1) for k in range(columns)],
        np.linspace(2, 1, iterations),
        2.3,
        GRID,
    )
    assert ends_of_scale(maps, 0.1) == pytest.approx((min(maps.min(), 0.09), maps.max()))
    assert pixels(path).shape[0] < 5 * 2.9 * 120 + 150  # only some of many iterations


def test_a_larger_share_is_lighter():
    """This holds in grayscale print too: the luminance of the colors rises with the share."""
    from matplotlib import colormaps

    colours = colormaps[SHADES](np.linspace(0, 1, 50))[:, :3]
    luminance = colours @ [0.299, 0.587, 0.114]
    assert (np.diff(luminance) > 0).all()


@pytest.mark.parametrize("shape", thinned([(1, 28, 28), (3, 20, 32), (3, 40, 12)]))
def test_sweeps(tmp_path, shape):
    for rows in (16, 1):
        drawn = RNG.random((rows, 11, *shape))
        numbers = [(k + 1, 0.01 * k) for k in range(rows)]
        path, offsets = tmp_path / f"{rows}.png", np.linspace(-0.25, 0.25, 11)
        plotting.sweeps(path, drawn, offsets, "a $ name " * 20, numbers, 16 - rows)
        pixels(path)


@pytest.mark.parametrize(
    "shape", thinned([(4, 1, 5, 5), (32, 3, 9, 9), (256, 1, 9, 9), (17, 1, 3, 3)])
)
def test_kernels(tmp_path, shape):
    weights = RNG.normal(size=shape)
    weights[0] = 0
    plotting.kernels(tmp_path / "a.png", weights)
    pixels(tmp_path / "a.png")
