"""Helpers shared by the tests of all rooms: random numbers, tensors and their gradients."""

import gc
from contextlib import contextmanager

import numpy as np

from minicaps import Tensor


def draw(*shape, seed=0):
    """Draw standard normal numbers."""
    return np.array(np.random.default_rng(seed).normal(size=shape))


def leaf(data, dtype=np.float64):
    return Tensor(np.array(data, dtype), requires_grad=True)


def differentiate(function, arrays, cotangent=None, **options):
    """Return function(*arrays) and the gradients for a cotangent, which is random by default."""
    tensors = [Tensor(a, requires_grad=True) for a in arrays]
    y = function(*tensors, **options)
    cotangent = draw(*y.shape, seed=1) if cotangent is None else cotangent
    y.backward(cotangent.astype(y.dtype, copy=False))
    return [y.data, *[t.grad for t in tensors]]


@contextmanager
def collector_off():
    """Let only reference counts free memory; a collection would see only objects made inside."""
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.enable()
