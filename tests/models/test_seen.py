"""Which rows and columns of an image a network sees, by formula, by hand and by its gradient."""

import numpy as np
import pytest
from thinning import thinned_rows

from minicaps import Tensor, models, no_grad
from minicaps.data.own.sizing import chosen_size
from minicaps.models.sizes import seen, whole

SMALL = ((5, 1), (5, 2), (5, 2))
EVERY = [
    ("capsnet", "small"),
    ("capsnet", "paper"),
    ("dense-cnn", "small"),
    ("dense-cnn", "paper"),
    ("matrix-capsnet", "small"),
    ("capsule-cnn", None),
    ("pooling-cnn", None),
    ("baseline-cnn", None),
]
QUICK = [pair for pair in EVERY if pair[1] == "small" or pair[0] == "capsule-cnn"]


def network(name, preset, size, **options):
    options |= {"preset": preset} if preset else {}
    options |= {"decoder": False} if name == "capsnet" else {}
    return models.build(name, (1, *size), 3, **options).eval()


def noise(*shape):
    return np.random.default_rng(0).random(shape, np.float32)


def test_the_small_network_by_hand():
    """A child sees 5 + 1·4 + 2·4 = 17 pixels, and its neighbor lies 1·2·2 = 4 pixels further."""
    sides = [17 + 4 * k for k in range(5)]
    assert [side for side in range(17, 34) if seen(side, SMALL) == side] == sides
    assert [seen(side, SMALL) for side in (20, 28, 32)] == [17, 25, 29]
    assert [whole(side, SMALL) for side in (1, 17, 18, 20, 28, 29, 32)] == [
        *(17, 17, 21, 21, 29, 29, 33),
    ]


def test_the_other_networks_by_hand():
    assert models.CapsNet.seen((28, 29), "paper") == (27, 29)  # 9 + 8 pixels, 2 apart
    assert models.CapsNet.whole((20, 28), "small") == (21, 29)
    assert models.DenseCNN.whole((20, 28), "paper") == (21, 29)
    # Centers of 13 + 4k pixels, and 2 more on each side, which padding provides
    assert [models.MatrixCapsNet.seen((side, 28)) for side in (28, 29, 30, 31)] == [
        *((27, 27), (29, 27), (30, 27), (31, 27)),
    ]
    assert models.CapsuleCNN.whole((20, 21)) == models.PoolingCNN.whole((20, 21)) == (20, 22)
    assert models.BaselineCNN.whole((20, 21)) == (20, 21)  # it pads all its layers


def influence(model, size):
    """Return whether the activations depend on each pixel of an image (H, W), by the gradient."""
    images = Tensor(noise(1, 1, *size), requires_grad=True)
    activations = model(images).activations
    (activations * np.array([[1.0, -2.0, 3.0]], np.float32)).sum().backward()
    return images.grad[0, 0] != 0


@pytest.mark.parametrize("size", [(20, 28), (23, 30), (25, 21)])
@pytest.mark.parametrize(("name", "preset"), thinned_rows(EVERY, QUICK))
def test_the_gradient_reaches_what_is_seen_and_nothing_else(name, preset, size):
    model = network(name, preset, size)
    rows, columns = model.seen(size, preset)
    expected = np.zeros(size, bool)
    expected[:rows, :columns] = True
    np.testing.assert_array_equal(influence(model, size), expected)


@pytest.mark.parametrize("size", [(40, 56), (28, 28), (20, 32), (64, 48)])
@pytest.mark.parametrize(("name", "preset"), thinned_rows(EVERY, QUICK))
def test_every_pixel_of_an_automatic_size_counts(name, preset, size):
    """A change of any pixel changes the activations: all by the gradient, the last by trying."""
    kind = models.MODELS[name]
    chosen, _ = chosen_size([size] * 3, lambda size: kind.whole(size, preset))
    model = network(name, preset, chosen)
    assert influence(model, chosen).all()
    images = np.repeat(noise(1, 1, *chosen), 4, axis=0)
    for k, place in enumerate([(-1, -1), (-1, 0), (0, -1)], 1):
        images[k, 0, *place] = 1 - images[k, 0, *place]
    with no_grad():
        activations = model(Tensor(images)).activations.numpy()
    assert (activations[1:] != activations[0]).any(axis=1).all()
