"""Guarantees of every op besides a correct gradient, checked for all gradient cases."""

import gc

import numpy as np
import pytest
from gradient_cases import CASES
from tensors import collector_off, differentiate

from minicaps import Tensor

SHAPE = (3, 2)
pytestmark = [
    pytest.mark.parametrize("case", CASES, ids=str),
    pytest.mark.filterwarnings("error"),
]


def build(case):
    return case.build(SHAPE, np.random.default_rng(0))


def test_precision_is_kept(case):
    function, arrays = build(case)
    expected = differentiate(function, arrays)
    for dtype, tolerance in ((np.float32, 1e-5), (np.float16, 1e-2)):
        found = differentiate(function, [a.astype(dtype) for a in arrays])
        for wide, narrow in zip(expected, found, strict=True):
            assert narrow.dtype == dtype and narrow.shape == wide.shape
            assert np.abs(wide - narrow).max() <= tolerance * max(1, np.abs(wide).max())


def test_inputs_and_cotangents_are_only_read(case):
    """This also holds for a cotangent that repeats one number in memory."""
    function, arrays = build(case)
    for a in arrays:
        a.flags.writeable = False
    shape = function(*map(Tensor, arrays)).shape
    expected = differentiate(function, arrays, np.full(shape, 0.7))
    found = differentiate(function, arrays, np.broadcast_to(0.7, shape))
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_gradients_belong_to_their_tensor_alone(case):
    function, arrays = build(case)
    value, *gradients = differentiate(function, arrays)
    for i, gradient in enumerate(gradients):
        assert gradient.flags.writeable
        for other in (value, *arrays, *gradients[:i]):
            assert not np.shares_memory(gradient, other)


def test_a_step_leaves_nothing_for_the_cyclic_collector(case):
    function, arrays = build(case)
    differentiate(function, arrays)
    with collector_off():
        differentiate(function, arrays)
        assert gc.collect() == 0
