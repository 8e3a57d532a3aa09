"""Activation functions and softmax, safe for arguments of any size."""

from minicaps.backend import array_module
from minicaps.tensor import op


@op
def relu(x):
    """max(0, x), with slope 0 at 0."""
    y = array_module(x).maximum(x, 0)
    return y, lambda g: g * (y > 0)


@op
def leaky_relu(x, *, slope=0.01):
    """x where x > 0, else slope · x."""
    xp = array_module(x)
    return xp.where(x > 0, x, slope * x), lambda g: xp.where(x > 0, g, slope * g)


@op
def sigmoid(x):
    """σ(x) = 1 / (1 + e^−x), by tanh, which cannot overflow."""
    y = 0.5 * array_module(x).tanh(0.5 * x) + 0.5
    return y, lambda g: g * y * (1 - y)


@op
def tanh(x):
    """Hyperbolic tangent."""
    y = array_module(x).tanh(x)
    return y, lambda g: g * (1 - y * y)


@op
def softplus(x):
    """ln(1 + e^x)."""
    y = array_module(x).logaddexp(x, 0)
    return y, lambda g: g * sigmoid.__wrapped__(x)[0]


@op
def log_sigmoid(x):
    """ln σ(x) = −softplus(−x)."""
    y = -array_module(x).logaddexp(-x, 0)
    return y, lambda g: g * sigmoid.__wrapped__(-x)[0]


@op
def softmax(x, *, axis=-1):
    """e^x / Σ e^x over `axis`."""
    xp = array_module(x)
    y = xp.exp(x - x.max(axis=axis, keepdims=True))
    y /= y.sum(axis=axis, keepdims=True)
    return y, lambda g: y * (g - (g * y).sum(axis=axis, keepdims=True))


@op
def log_softmax(x, *, axis=-1):
    """x − ln Σ e^x over `axis`."""
    xp = array_module(x)
    shifted = x - x.max(axis=axis, keepdims=True)
    y = shifted - xp.log(xp.exp(shifted).sum(axis=axis, keepdims=True))
    return y, lambda g: g - xp.exp(y) * g.sum(axis=axis, keepdims=True)
