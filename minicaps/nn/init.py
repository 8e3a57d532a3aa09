"""Initial values of parameters, named after their authors. All are drawn by NumPy.

rng: a `numpy.random.Generator`, a seed, or None for values that differ each time.
"""

import math

import numpy as np

Rng = np.random.Generator | int | None


def initial(kind, rng, shape, fan_in, fan_out):
    """Values by the name of their kind.

    "he": N(0, 2/fan_in) keeps the variance through a ReLU (He et al. 2015). "glorot": U(−a, a),
    a² = 6/(fan_in + fan_out), for layers without ReLU (Glorot and Bengio 2010).
    """
    if kind == "he":
        return _normal(rng, shape, math.sqrt(2 / fan_in))
    if kind != "glorot":
        raise ValueError(f"unknown init {kind!r}: choose he or glorot")
    a = math.sqrt(6 / (fan_in + fan_out))
    return np.random.default_rng(rng).uniform(-a, a, shape).astype(np.float32)


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
    return (std * np.random.default_rng(rng).standard_normal(shape)).astype(np.float32)
