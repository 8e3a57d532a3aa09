"""Initial values of parameters, named after their authors. All are drawn by NumPy, by seed."""

import math

import numpy as np


def he_normal(rng, shape, fan_in):
    """N(0, 2/fan_in): keeps the variance through a ReLU (He et al. 2015)."""
    return _normal(rng, shape, math.sqrt(2 / fan_in))


def glorot_uniform(rng, shape, fan_in, fan_out):
    """U(−a, a), a² = 6/(fan_in + fan_out): for layers without ReLU (Glorot and Bengio 2010)."""
    a = math.sqrt(6 / (fan_in + fan_out))
    return rng.uniform(-a, a, shape).astype(np.float32)


def capsule_normal(rng, shape):
    """N(0, J²/(I·D)) for W (I, J, N, D): the first sum Σ_i û/J is as long as one input capsule.

    Ours: neither dead (squash is flat at zero) nor saturated at the start, for any size.
    """
    inputs, outputs, _, size = shape
    return _normal(rng, shape, outputs / math.sqrt(inputs * size))


def _normal(rng, shape, std):
    return (std * rng.standard_normal(shape)).astype(np.float32)
