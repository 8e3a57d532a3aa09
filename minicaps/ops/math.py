"""Elementwise arithmetic with NumPy's broadcasting rules."""

from minicaps.backend import array_module, is_array
from minicaps.tensor import op

__all__ = [
    "abs", "add", "clip", "cos", "divide", "exp", "log", "maximum", "multiply", "negative", "power",
    "sqrt", "subtract", "where",
]  # fmt: skip


def as_float(x):
    """Convert integers to float64 so that differences do not wrap around."""
    return x if x.dtype.kind == "f" else x.astype(float)


def as_signed(x):
    """Convert unsigned integers and booleans to float64, in which differences do not wrap."""
    return x.astype(float) if is_array(x) and x.dtype.kind in "ub" else x


@op
def add(a, b):
    """Sum a + b."""
    return a + b, (lambda g: g, lambda g: g)


@op
def subtract(a, b):
    """Difference a − b."""
    a, b = as_signed(a), as_signed(b)
    return a - b, (lambda g: g, lambda g: -g)


@op
def multiply(a, b):
    """Product a · b."""
    return a * b, (lambda g: g * b, lambda g: g * a)


@op
def divide(a, b):
    """Quotient a / b."""
    y = a / b
    return y, (lambda g: g / b, lambda g: -g * y / b)


@op
def negative(x):
    """−x."""
    return -as_signed(x), lambda g: -g


@op
def power(a, b):
    """Power a^b; at 0⁰, the value is 1, and the slopes are 0.

    The slope with respect to b is NaN where a < 0, and −∞ where a = 0 and b < 0. All other slopes
    are the limits of those nearby.
    """
    y = a**b
    return y, (lambda g: g * _power_slope(a, b), lambda g: g * _exponent_slope(a, b, y))


def _power_slope(a, b):
    """Return ∂(a^b)/∂a = b a^(b−1), or 0 where b = 0 (even at a = 0 and a = ∞)."""
    if not is_array(b):
        return b * a ** (b - 1) if b != 0 else array_module(a).zeros_like(a)
    return b * array_module(b).where(b == 0, 1, a) ** (b - 1)


def _exponent_slope(a, b, y):
    """Return ∂(a^b)/∂b = a^b ln a, which tends to 0 where a^b does, and is 0 at 0⁰."""
    xp = array_module(y)
    flat = (a >= 0) & ((y == 0) | ((a == 0) & (b == 0)))
    return xp.where(flat, 0, y) * xp.log(xp.where(flat, 1, a).astype(y.dtype))


@op
def exp(x):
    """e^x."""
    y = array_module(x).exp(x)
    return y, lambda g: g * y


@op
def log(x):
    """Natural logarithm."""
    return array_module(x).log(x), lambda g: g / x


@op
def sqrt(x):
    """Square root √x; the slope at 0 is infinite."""
    y = array_module(x).sqrt(x)
    return y, lambda g: g / (2 * y)


@op
def cos(x):
    """Cosine of x in radians."""
    xp = array_module(x)
    return xp.cos(x), lambda g: -g * xp.sin(x)


@op
def abs(x):
    """Absolute value |x|, with slope 0 at 0."""
    xp = array_module(x)
    return xp.abs(x), lambda g: g * xp.sign(x)


@op
def maximum(a, b):
    """Elementwise maximum of a and b; equal elements each receive half of the gradient."""
    xp = array_module(a, b)

    def share(g, mine, other):
        return xp.where(mine > other, g, xp.where(mine == other, g / 2, 0))

    return xp.maximum(a, b), (lambda g: share(g, a, b), lambda g: share(g, b, a))


@op
def clip(x, *, low: float | None = None, high: float | None = None):
    """Clip x to the interval [low, high], where None means no limit.

    The slope is 1 inside the interval and at its ends.
    """
    if low is None and high is None:
        raise ValueError("clip needs low, high or both")
    xp = array_module(x)
    y = xp.clip(x, low, high)
    return y, lambda g: g * (y == x)


@op
def where(condition, a, b):
    """Elements of a where the boolean array `condition` is True, and elements of b elsewhere.

    The other branch receives the gradient 0, but it has been computed: if its own slope is infinite
    there, 0 · ∞ gives NaN. Replace the input of such a branch with a second `where`, as in
    where(x > 0, x, f(where(x > 0, 0, x))).
    """
    xp = array_module(condition, a, b)
    y = xp.where(condition, a, b)
    return y, (None, lambda g: xp.where(condition, g, 0), lambda g: xp.where(condition, 0, g))
