"""Operations on capsules: length, direction, squash and mask."""

import math

from numpy.lib.array_utils import normalize_axis_index

from minicaps.backend import array_module
from minicaps.ops.math import as_float
from minicaps.ops.targets import one_hot
from minicaps.sums import SHORT, total
from minicaps.tensor import op

__all__ = ["direction", "length", "mask", "squash"]


def _total(x, axis):
    """Sum over `axis`, keeping it with size 1; BLAS sums short rows much faster than NumPy."""
    if axis not in (-1, x.ndim - 1) or x.shape[-1] > SHORT:
        return total(x, axis, keepdims=True)
    return x @ array_module(x).ones((x.shape[-1], 1), x.dtype)


def _polar(s, axis):
    """Split vectors into directions and lengths; the zero vector has the direction 0.

    Each vector is first divided by the mean magnitude of its components, so that squaring neither
    overflows nor underflows.
    """
    xp, s = array_module(s), as_float(s)
    numbers = s.shape[normalize_axis_index(axis, s.ndim)]
    scale = _total(xp.abs(s) / max(1, numbers), axis)
    divisor = xp.where(scale == 0, math.inf, scale)  # vectors too short to measure become zero
    unit = s / divisor
    norm = xp.sqrt(_total(unit * unit, axis))
    unit /= xp.where(norm == 0, 1, norm)
    limits = xp.finfo(s.dtype)
    largest = float(limits.max) * (1 - 4 * float(limits.eps))  # longer vectors count as this long
    return unit, scale * xp.minimum(norm, largest / xp.maximum(divisor, 1))


@op
def length(v, *, axis: int = -1):
    """Length |v| along `axis`, which is removed; the gradient at the zero vector is 0."""
    xp = array_module(v)
    unit, n = _polar(v, axis)
    return n.squeeze(axis), lambda g: xp.expand_dims(g, axis) * unit


@op
def direction(v, *, axis: int = -1):
    """Unit vector v/|v| along `axis`; the zero vector is mapped to 0, with gradient 0."""
    xp = array_module(v)
    unit, n = _polar(v, axis)
    inverse = xp.where(n == 0, 0, 1 / xp.maximum(n, float(xp.finfo(n.dtype).tiny)))
    return unit, lambda g: inverse * (g - _total(g * unit, axis) * unit)


def _paper(xp, n, a=1.0):
    """Return ℓ = n²/(a+n²), ℓ/n and ℓ' = 2an/(a+n²)².

    The quotients are computed with √(a+n²) to avoid squares that could overflow.
    """
    root = xp.hypot(n, math.sqrt(a))
    share = n / root
    return share**2, share / root, 2 * a * share / root / root / root


def _tanh(xp, n):
    new, e = xp.tanh(n), xp.exp(-n) ** 2
    return new, _ratio(xp, new, n), 4 * e / (1 + e) ** 2


def _exp(xp, n):
    new = -xp.expm1(-n)
    return new, _ratio(xp, new, n), xp.exp(-n)


def _rational(xp, n):
    ratio = 1 / (1 + n)
    return n * ratio, ratio, ratio * ratio


def _ratio(xp, new, n):
    """Return ℓ(n)/n, which has the limit 1 at n = 0."""
    return xp.where(n == 0, 1, new / xp.where(n == 0, 1, n))


# kind -> function of the length n that returns the new length ℓ(n), ℓ(n)/n and the slope ℓ'(n)
SQUASHES = {"paper": _paper, "half": lambda xp, n: _paper(xp, n, a=0.5)}
SQUASHES |= {"tanh": _tanh, "exp": _exp, "rational": _rational}


def check_squash(kind):
    """Raise ValueError unless `kind` is a known squash function or "none"."""
    if kind not in SQUASHES and kind != "none":
        raise ValueError(f"unknown squash {kind!r}: choose {', '.join(SQUASHES)} or none")


@op
def squash(s, *, axis: int = -1, kind: str = "paper"):
    """Shrink the vectors along `axis` to a length in [0, 1) without changing their direction.

    v = ℓ(n) s/n with n = |s|, where `kind` selects ℓ: "paper" n²/(1+n²) (Sabour et al. 2017, eq.
    1), "half" n²/(½+n²), "tanh" tanh n, "exp" 1−e^−n, "rational" n/(1+n), or "none" n (v = s). Both
    the value and the gradient are exact at the zero vector.
    """
    check_squash(kind)
    if kind == "none":
        return s, lambda g: g
    xp = array_module(s)
    unit, n = _polar(s, axis)
    new_length, across, along = SQUASHES[kind](xp, n)

    def pullback(g):
        # ∂v/∂s = ℓ(n)/n · I + (ℓ'(n) − ℓ(n)/n) · ŝŝᵀ
        radial = _total(g * unit, axis)
        return across * g + ((along - across) * radial) * unit

    return new_length * unit, pullback


@op
def mask(poses, keep):
    """Keep one capsule of each sample and set the others to zero.

    poses: (B, J, D). keep: the index of the capsule to keep, (B,), or zeros and ones (B, J).
    """
    chosen = one_hot(keep, poses[:, :, 0])[..., None]
    return poses * chosen, (lambda g: g * chosen, None)
