"""The fast paths give the results of the plain ones at the sizes for which they are designed."""

from unittest.mock import patch

import numpy as np
import pytest
from tensors import differentiate

from minicaps import Tensor, data, models, ops
from minicaps.nn import capsules
from minicaps.ops import conv
from minicaps.optim import Adam
from minicaps.routing import ROUTINGS, agreement, agreement_plain, make_votes, make_votes_plain

LIMITS = {np.float32: 1e-5, np.float64: 1e-10}  # of the largest entry
each_dtype = pytest.mark.parametrize("dtype", LIMITS)


def assert_close(found, exact, dtype):
    for a, b in zip(found, exact, strict=True):
        assert a.dtype == dtype
        assert np.abs(a - b).max() <= LIMITS[dtype] * np.abs(b).max()


@pytest.fixture(scope="module")
def second_layer():
    """Return two images for CapsNet's second convolution, and the correct result in float64."""
    rng = np.random.default_rng(0)
    x = np.maximum(rng.normal(size=(2, 256, 20, 20)), 0)
    w = rng.normal(size=(256, 256, 9, 9)) / 144
    g = rng.normal(size=(2, 256, 6, 6))
    return x, w, g, differentiate(lambda x, w: ops.conv2d_plain(x, w, stride=2), [x, w], g)


@pytest.mark.slow
@each_dtype
@pytest.mark.parametrize("spectra", [True, False], ids=["spectra", "patches"])
def test_the_second_convolution(second_layer, spectra, dtype):
    x, w, g, exact = second_layer
    with patch.object(conv, "worthwhile", lambda *_: spectra):
        arrays = [x.astype(dtype), w.astype(dtype)]
        assert_close(
            differentiate(lambda x, w: ops.conv2d(x, w, stride=2), arrays, g), exact, dtype
        )


@each_dtype
def test_the_routing_of_digitcaps(dtype):
    rng = np.random.default_rng(0)
    u, w = 0.3 * rng.normal(size=(3, 1152, 8)), 0.1 * rng.normal(size=(1152, 10, 8, 16))
    g = rng.normal(size=(3, 10, 16))
    exact = differentiate(lambda u, w: agreement_plain(make_votes_plain(u, w)).poses, [u, w], g)
    arrays = [u.astype(dtype), w.astype(dtype)]
    found = differentiate(lambda u, w: agreement(make_votes(u, w)).poses, arrays, g)
    assert_close(found, exact, dtype)


def losses(dtype, steps=50, batch=32):
    """Train the small preset on strokes of 20×20 pixels; yield the loss of every step."""
    split = data.load("strokes", limit=steps * batch).train
    images = split.images[:, :, 4:24, 4:24].reshape(steps, batch, 1, 20, 20).astype(dtype)
    model = models.build("capsnet", images.shape[2:], 10, preset="small").astype(dtype)
    optimizer = Adam(model.named_parameters(), 0.0001)
    for x, labels in zip(images, split.labels.reshape(steps, batch), strict=True):
        routed = model(Tensor(x))
        loss = ops.margin_loss(routed.activations, labels)
        loss = loss + ops.reconstruction_loss(model.reconstruct(routed.poses, labels), x)
        model.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


# With larger steps, a difference of 1e-6 between two float32 runs can grow to 4e-3, plain or not,
# if it switches a ReLU.
@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "limit"), [(np.float32, 1e-3), (np.float64, 1e-10)])
@pytest.mark.parametrize("spectra", [True, False], ids=["spectra", "patches"])
def test_fifty_steps_have_the_losses_of_the_plain_path(dtype, limit, spectra):
    with patch.object(conv, "worthwhile", lambda *_: spectra):
        fast = list(losses(dtype))
    with (
        patch.object(ops, "conv2d", ops.conv2d_plain),
        patch.dict(ROUTINGS, agreement=agreement_plain),
        patch.object(capsules, "make_votes", make_votes_plain),
    ):
        plain = list(losses(dtype))
    assert fast != plain  # otherwise the plain path was not used
    np.testing.assert_allclose(fast, plain, rtol=limit)
    assert fast[-1] < 0.7 * fast[0]


@each_dtype
def test_where_a_kernel_sees_nothing_its_output_is_zero(dtype):
    """ReLU has no slope there and would pass half of the rounding errors."""
    rng = np.random.default_rng(0)
    x, w = np.zeros((2, 3, 20, 20), dtype), rng.normal(size=(4, 3, 5, 5)).astype(dtype)
    x[0, :, 12:, 12:] = rng.normal(size=(3, 8, 8))
    with patch.object(conv, "worthwhile", lambda *_: True):
        y = ops.conv2d(Tensor(x), Tensor(w)).data
    assert not y[0, :, :8].any() and not y[0, :, :, :8].any() and not y[1].any()
    assert (y[0, :, 8:, 8:] != 0).all()


@each_dtype
def test_a_weak_channel_is_not_taken_for_rounding(dtype):
    rng = np.random.default_rng(0)
    x, w = rng.random((4, 8, 20, 20)).astype(dtype), rng.normal(size=(6, 8, 9, 9)).astype(dtype)
    w[::2] *= 1e-7
    plain = ops.conv2d_plain(Tensor(x), Tensor(w), stride=2).data
    with patch.object(conv, "worthwhile", lambda *_: True):
        found = ops.conv2d(Tensor(x), Tensor(w), stride=2).data
    largest = np.abs(plain).max(axis=(2, 3), keepdims=True)
    assert (np.abs(found - plain) <= LIMITS[dtype] * largest).all()


@pytest.mark.parametrize("bad", [np.inf, np.nan, 1e38])
@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
def test_a_broken_kernel_leaves_the_other_channels_alone(bad):
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=s).astype("f") for s in ((2, 3, 12, 12), (4, 3, 5, 5)))
    w[0, 0, 0, 0] = bad
    plain = ops.conv2d_plain(Tensor(x), Tensor(w)).data
    with patch.object(conv, "worthwhile", lambda *_: True):
        found = ops.conv2d(Tensor(x), Tensor(w)).data
    np.testing.assert_allclose(found[:, 1:], plain[:, 1:], rtol=1e-3, atol=1e-5)
