"""Short names for what every room's tests repeat: numbers, tensors, and their gradients."""

import gc
from contextlib import contextmanager

import numpy as np

from minicaps import Tensor


def draw(*shape, seed=0):
    """Standard normal numbers."""
    return np.array(np.random.default_rng(seed).normal(size=shape))


def leaf(data, dtype=np.float64):
    return Tensor(np.array(data, dtype), requires_grad=True)


def differentiate(function, arrays, cotangent=None, **options):
    """The value of function(*arrays) and the gradients for a cotangent, by default a random one."""
    tensors = [Tensor(a, requires_grad=True) for a in arrays]
    y = function(*tensors, **options)
    cotangent = draw(*y.shape, seed=1) if cotangent is None else cotangent
    y.backward(cotangent.astype(y.dtype, copy=False))
    return [y.data, *[t.grad for t in tensors]]


@contextmanager
def collector_off():
    """Only reference counts free memory; a collection would look at what is made inside, alone."""
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.enable()
