"""Activation functions and softmax, numerically stable for arguments of any magnitude."""

from minicaps.backend import array_module
from minicaps.ops.math import as_float
from minicaps.sums import total
from minicaps.tensor import op
from minicaps.threads import over_parts

__all__ = ["log_sigmoid", "log_softmax", "relu", "sigmoid", "softmax", "tanh"]


@op
def relu(x):
    """Rectified linear unit, max(0, x); the slope at 0 is 0."""
    xp = array_module(x)
    y = xp.empty_like(x)
    over_parts(lambda part: xp.maximum(x[part], 0, out=y[part]), y)

    def pullback(g):
        grad = xp.empty_like(y)
        over_parts(lambda part: xp.multiply(g[part], y[part] > 0, out=grad[part]), y)
        return grad

    return y, pullback


@op
def sigmoid(x):
    """Logistic function σ(x) = 1 / (1 + e^−x), accurate in both tails."""
    xp, x = array_module(x), as_float(x)
    e = xp.exp(-xp.abs(x))  # cannot overflow
    share = 1 / (1 + e)
    y = xp.exp(xp.minimum(x, 0)) * share
    return y, lambda g: g * (e * share * share)


@op
def tanh(x):
    """Hyperbolic tangent."""
    xp = array_module(x)

    def pullback(g):
        e = xp.exp(-xp.abs(x)) ** 2
        return g * (4 * e / (1 + e) ** 2)  # 1 − tanh² x, accurate in both tails

    return xp.tanh(x), pullback


@op
def log_sigmoid(x):
    """Logarithm of the sigmoid, ln σ(x) = −softplus(−x)."""
    x = as_float(x)
    y = -array_module(x).logaddexp(-x, 0)
    return y, lambda g: g * sigmoid.raw(-x)[0]


@op
def softmax(x, *, axis: int = -1):
    """Softmax over `axis`, e^x / Σ e^x."""
    xp, x = array_module(x), as_float(x)
    y = xp.exp(x - x.max(axis=axis, keepdims=True))
    y /= total(y, axis, keepdims=True)
    return y, lambda g: y * (g - total(g * y, axis, keepdims=True))


@op
def log_softmax(x, *, axis: int = -1):
    """Logarithm of the softmax over `axis`, x − ln Σ e^x."""
    xp, x = array_module(x), as_float(x)
    shifted = x - x.max(axis=axis, keepdims=True)
    y = shifted - xp.log(total(xp.exp(shifted), axis, keepdims=True))
    return y, lambda g: g - xp.exp(y) * total(g, axis, keepdims=True)
