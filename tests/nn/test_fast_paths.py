"""The fast paths give the results of the plain ones at the sizes for which they are designed."""

import functools
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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


def test_a_bright_channel_does_not_erase_the_outputs_that_do_not_see_it():
    rng = np.random.default_rng(0)
    x, w = rng.random((48, 64, 20, 20)), 0.02 * rng.normal(size=(32, 64, 9, 9))
    x[:, 0] *= 1e7
    w[1:, 0] = 0
    x, w = x.astype("f"), w.astype("f")
    assert conv.worthwhile(conv.channels_last(x), w.transpose(0, 2, 3, 1), 2)
    found = ops.conv2d(x, w, stride=2).data
    exact = ops.conv2d(x.astype(float), w.astype(float), stride=2).data
    largest = np.abs(exact).max(axis=(2, 3), keepdims=True)
    assert (np.abs(found - exact) <= 1e-5 * largest).all()


def test_the_rounding_errors_are_measured_without_waiting_for_a_device(strict_cupy):
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(2, 3, 12, 12)), rng.normal(size=(4, 3, 5, 5))
    expected = ops.conv2d(x, w).data
    strict_cupy.host_syncs.clear()
    with patch.object(conv, "worthwhile", lambda *_: True):
        found = ops.conv2d(strict_cupy.asarray(x), strict_cupy.asarray(w)).data
    assert not strict_cupy.host_syncs
    np.testing.assert_allclose(found.get(), expected, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0, 6, 12]), st.sampled_from([1, 2]))
def test_spectra_keep_their_bound_for_every_image_and_channel(seed, decades, stride):
    """The bound in the docstring, with planes whose sizes differ by many powers of ten."""
    rng = np.random.default_rng(seed)

    def planes(*shape):
        values = np.exp(rng.normal(size=shape)) * rng.choice([-1, 1], shape)
        if rng.random() < 0.3:
            values = np.full(shape, 0.1)  # its rounding errors do not cancel
        for pair in ((shape[0], 1), (1, shape[1]), shape[:2]):
            values *= 10 ** rng.uniform(-decades / 3, decades / 3, pair)[..., None, None]
        return (values * (rng.random((*shape[:2], 1, 1)) < 0.8)).astype("f")

    size, kernel = 12, int(rng.integers(3, 8))
    out = (size - kernel) // stride + 1
    x, w, g = planes(3, 5, size, size), planes(4, 5, kernel, kernel), planes(3, 4, out, out)

    def convolved(dtype):
        convolve = functools.partial(ops.conv2d, stride=stride)
        return differentiate(convolve, [a.astype(dtype) for a in (x, w)], g.astype(dtype))

    with patch.object(conv, "worthwhile", lambda *_: True):
        found = convolved("f")
    with patch.object(conv, "worthwhile", lambda *_: False):
        exact = convolved(float)
    X, W, G = (np.abs(a.astype(float)).max(axis=(2, 3)) for a in (x, w, g))
    bounds = kernel**2 * (X @ W.T), kernel**2 * (G @ W), out**2 * (G.T @ X)
    for one, other, bound in zip(found, exact, bounds, strict=True):
        errors = np.abs(one - other).max(axis=(2, 3))
        tiny = 1e3 * np.finfo("f").tiny
        assert (errors <= 16 * np.finfo("f").eps * bound + tiny).all()


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
