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


def capsule_normal(rng, shape, gain):
    """N(0, gain²/D) for W (…, D): a vote is `gain` times as long as its child.

    The capsule layers choose it such that the first sum of their votes is at most about one long:
    neither dead (squash is flat at zero) nor saturated, for any size.
    """
    return _normal(rng, shape, gain / math.sqrt(shape[-1]))


def pose_identity(rng, shape):
    """I + N(0, 0.03²) for matrices (…, n, n): votes start near the poses, and each differs.

    Ours: the further from I, the sharper the first E steps, and the slower the learning.
    """
    return _normal(rng, shape, 0.03) + np.eye(shape[-1], dtype=np.float32)


def _normal(rng, shape, std):
    return (std * rng.standard_normal(shape)).astype(np.float32)
