"""Sums in float32 are as accurate along any axes as NumPy's pairwise sums are along the last."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minicaps import Tensor, nn, ops, sums
from minicaps.clustering import gmm, kmeans, spherical_kmeans
from minicaps.graph import unbroadcast
from minicaps.sums import total

EPS = float(np.finfo("f").eps)


@st.composite
def cases(draw):
    """Return an array of any memory layout, and some of its axes."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = st.sampled_from([0, 1, 2, 7, 15, 16, 17, 40, 300])
    shape = draw(st.lists(sizes, min_size=0, max_size=4).filter(lambda s: np.prod(s) < 2**21))
    x = rng.normal(size=shape).transpose(rng.permutation(len(shape)))
    x = x[tuple(slice(None, None, int(rng.choice([1, 1, 2, -1]))) for _ in shape)]
    axes = [n for n in range(len(shape)) if rng.random() < 0.6]
    return x, draw(st.sampled_from([None, tuple(axes), *axes]))


@settings(max_examples=150, deadline=None)
@given(cases(), st.booleans())
def test_a_total_is_a_sum(case, keepdims):
    x, axis = case
    found, expected = total(x, axis, keepdims=keepdims), x.sum(axis=axis, keepdims=keepdims)
    assert isinstance(found, np.ndarray) and found.shape == np.shape(expected)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("dtype", ["?", "B", "i", "e", "f", "d"])
def test_a_total_has_the_dtype_of_a_sum(dtype):
    x = np.ones((300, 2), dtype)
    assert total(x, 0).dtype == x.sum(axis=0).dtype
    np.testing.assert_array_equal(total(x, 0), [300, 300])
    assert total(x, 0, dtype="d").dtype == "d"


@pytest.mark.parametrize("layout", ["rows", "columns", "every second", "repeated"])
def test_long_sums_are_accurate(layout):
    """NumPy is wrong by 4% for such rows: every addition rounds in the same direction."""
    n = 2**20
    x = np.full((n, 3), 0.1, "f")
    if layout == "columns":
        x = np.asfortranarray(x)
    if layout == "every second":
        x = np.repeat(x, 2, axis=1)[:, ::2]
    if layout == "repeated":
        x = np.broadcast_to(np.float32(0.1), (n, 3))
    exact = n * float(np.float32(0.1))
    for found in (ops.sum(x, axis=0), ops.mean(x, axis=0) * n, Tensor(unbroadcast(x, (3,)))):
        np.testing.assert_allclose(found.data, exact, rtol=20 * EPS)


def test_ones_are_counted_beyond_the_digits_of_a_number():
    ones = np.broadcast_to(np.ones((1, 2), "f"), (2**25, 2))
    np.testing.assert_array_equal(ops.sum(ones, axis=0).data, 2**25)


def test_batch_norm_of_a_constant_is_zero():
    x = ops.conv2d(np.full((8, 1, 256, 256), 0.1, "f"), np.ones((4, 1, 1, 1), "f"))
    assert np.abs(nn.BatchNorm2d(4)(x).data).max() < 1e-3  # (0.1 − mean) / √1e-5


def test_gradients_of_what_all_pixels_share_are_accurate():
    x = np.full((4, 2, 256, 256), 0.1, "f")
    scale = Tensor(np.ones((2, 1, 1), "f"), requires_grad=True)
    bias = Tensor(np.zeros(3, "f"), requires_grad=True)
    kernel = np.ones((3, 2, 1, 1), "f")
    ops.conv2d(x * scale, kernel, bias).backward(np.full((4, 3, 256, 256), 0.1, "f"))
    tenth, count = float(np.float32(0.1)), 4 * 256 * 256
    np.testing.assert_allclose(bias.grad, count * tenth, rtol=20 * EPS)
    np.testing.assert_allclose(scale.grad, 3 * count * tenth**2, rtol=20 * EPS)


@pytest.mark.parametrize("function", [ops.softmax, ops.log_softmax, ops.logsumexp, ops.length])
def test_reductions_over_a_long_first_axis_are_accurate(function):
    x = np.full((2**18, 3), 0.1, "f")
    found, exact = function(x, axis=0).data, function(x.astype(float), axis=0).data
    np.testing.assert_allclose(found, exact, rtol=40 * EPS)


@pytest.mark.parametrize(
    "cluster",
    [kmeans, *(lambda x, k, c=c, **o: gmm(x, k, covariance=c, **o) for c in ("full", "diagonal"))],
)
def test_a_center_is_the_mean_of_its_points(cluster):
    x = (10.5 + 0.5 * np.random.default_rng(0).random((500_000, 2))).astype("f")
    centre = cluster(x, 1, start=x[:1], iterations=2).centres
    np.testing.assert_allclose(centre, x.mean(axis=0, dtype=float)[None], rtol=20 * EPS)


def test_a_spherical_center_is_the_sum_of_its_points():
    x = np.full((500_000, 2), 0.1, "f")
    centre = spherical_kmeans(x, 1, start=x[:1], iterations=2).centres
    np.testing.assert_allclose(centre, len(x) * float(x[0, 0]), rtol=20 * EPS)


@pytest.mark.parametrize("axis", [None, 0, 1, (0, 2)])
def test_a_device_sums_alike_without_waiting(strict_cupy, monkeypatch, axis):
    monkeypatch.setattr(sums, "SHORT_ON_GPU", 128)
    x = np.random.default_rng(0).normal(size=(300, 301, 2))
    strict_cupy.host_syncs.clear()
    found = total(strict_cupy.asarray(x).transpose(1, 0, 2), axis)
    assert not strict_cupy.host_syncs
    np.testing.assert_allclose(found.get(), x.transpose(1, 0, 2).sum(axis=axis), atol=1e-10)
