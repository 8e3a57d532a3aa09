"""Initial values of parameters, all of which are drawn with NumPy.

rng: a `numpy.random.Generator`, a seed, or None for values that differ each time.
"""

import math

import numpy as np

Rng = np.random.Generator | int | None


def initial(kind, rng, shape, fan_in, fan_out):
    """Draw initial values by the method `kind`, which is named after its first author.

    "he": N(0, 2/fan_in), which preserves the variance through a ReLU (He et al. 2015).
    "glorot": U(−a, a) with a² = 6/(fan_in + fan_out), for layers without a ReLU (Glorot and
    Bengio 2010).
    """
    if kind == "he":
        return _normal(rng, shape, math.sqrt(2 / fan_in))
    if kind != "glorot":
        raise ValueError(f"unknown init {kind!r}: choose he or glorot")
    a = math.sqrt(6 / (fan_in + fan_out))
    return np.random.default_rng(rng).uniform(-a, a, shape).astype(np.float32)


def capsule_normal(rng, shape, gain):
    """Draw weights (…, D) from N(0, gain²/D), so that a vote is `gain` times as long as its child.

    The capsule layers choose `gain` so that the initial sum of votes has a length of at most about
    1, regardless of the size of the layer. At this length, the squash function is neither as flat
    as at zero nor saturated.
    """
    return _normal(rng, shape, gain / math.sqrt(shape[-1]))


def pose_identity(rng, shape):
    """Draw matrices (…, n, n) from I + N(0, 0.03²).

    Initial votes therefore differ slightly from the poses. This choice is our own. Matrices farther
    from I make the first E steps sharper and learning slower.
    """
    return _normal(rng, shape, 0.03) + np.eye(shape[-1], dtype=np.float32)


def _normal(rng, shape, std):
    return (std * np.random.default_rng(rng).standard_normal(shape)).astype(np.float32)
