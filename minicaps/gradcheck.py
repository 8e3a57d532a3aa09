"""Verification of pullbacks by comparing gradients with central differences.

    >>> import numpy as np
    >>> from minicaps import ops
    >>> from minicaps.gradcheck import check_gradients
    >>> check_gradients(ops.squash, np.array([[3.0, 4.0], [0.0, 1.0]]))

The cotangent is random, because a cotangent of ones would miss errors that add up to zero: the
gradient of sum(softmax(x)) is zero, so any multiple of a correct pullback would pass.
"""

from collections.abc import Callable

import numpy as np

from minicaps.backend import Array
from minicaps.graph import no_grad
from minicaps.tensor import Tensor

ALL_ENTRIES = 200  # inputs up to this size are checked entry by entry
TINY = np.finfo(np.float64).tiny  # avoids 0/0 where a function is identically zero
DIRECTIONS = 20  # larger inputs are checked along this many random directions


class GradientError(AssertionError):
    """Raised when a gradient differs from the central differences."""


def check_gradients(
    function: Callable, *arrays: Array, step: float = 1e-5, rtol: float = 1e-5, atol: float = 1e-7,
    seed: int = 0,
) -> None:  # fmt: skip
    """Compare the gradients of a function with central differences.

    The gradients are computed for all arguments together and for each argument separately.

    Parameters
    ----------
    function
        Maps one tensor per array to a tensor, or to a tuple or list of tensors. It must be
        deterministic and smooth near the arrays, unlike `squash` at a zero vector or `relu` at 0.
    arrays
        Floating-point NumPy arrays. They are copied to float64 in the same memory layout.
    step
        h in (f(x+h) − f(x−h)) / 2h, relative to max(1, |x|).
    rtol, atol
        The allowed difference is rtol · |value| + atol · the largest entry of the argument's
        gradient, plus the effect of rounding errors in the function's value.

    Raises
    ------
    GradientError
        If a gradient differs; the message gives the worst entry, both values and the step.
    TypeError
        If an array is not floating-point or the function does not return tensors.
    """
    rng = np.random.default_rng(seed)
    arrays = [_widened(a) for a in arrays]
    outputs = _as_list(function(*map(Tensor, arrays)))
    cotangents = [rng.standard_normal(y.shape) for y in outputs]
    gradients = _gradients(function, arrays, cotangents, range(len(arrays)))

    def value():
        with no_grad():
            ys = _as_list(function(*map(Tensor, arrays)))
        return sum(float((y.data * c).sum()) for y, c in zip(ys, cotangents, strict=True))

    size = sum(float(np.abs(y.data * c).sum()) for y, c in zip(outputs, cotangents, strict=True))
    if not np.isfinite(size):
        raise GradientError("the function's value is not finite, so it has no gradient here")
    worst, complaint = 1.0, None
    for position, (array, gradient) in enumerate(zip(arrays, gradients, strict=True)):
        scale = np.abs(gradient[np.isfinite(gradient)]).max(initial=0)
        (alone,) = _gradients(function, arrays, cotangents, [position])
        if not np.allclose(alone, gradient, rtol=rtol, atol=atol * scale, equal_nan=True):
            where = f"argument {position} {array.shape}"
            raise GradientError(f"{where}: the gradient differs when no other is required")
        for direction, label, length in _directions(array, rng):
            moved, h = direction != 0, step * length
            found = float(gradient[moved] @ direction[moved])
            numeric = _central_difference(value, array, direction, h)
            rounding = 8 * np.finfo(np.float64).eps * size / h
            apart = abs(found - numeric) / (atol * scale + rtol * abs(numeric) + rounding + TINY)
            apart = np.inf if np.isnan(apart) else apart
            if apart > worst:
                says = f"the gradient is {found:.9g}, but central differences"
                says = f"{label}: {says} with step {h:.1g} give {numeric:.9g}"
                worst, complaint = apart, f"argument {position} {array.shape}, {says}"
    if complaint:
        raise GradientError(complaint)


def _gradients(function, arrays, cotangents, wanted):
    """Return the gradients of the `wanted` arguments as computed by the pullbacks."""
    tensors = [Tensor(a, requires_grad=i in wanted) for i, a in enumerate(arrays)]
    outputs = _as_list(function(*tensors))
    terms = [(y * c).sum() for y, c in zip(outputs, cotangents, strict=True)]
    if (total := sum(terms[1:], terms[0])).requires_grad:
        total.backward()
    tensors = [tensors[i] for i in wanted]
    return [np.zeros_like(t.data) if t.grad is None else t.grad for t in tensors]


def _widened(array):
    """Return a float64 copy with the memory layout of `array` (transposed, strided or reversed)."""
    if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
        kind = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
        raise TypeError(f"check_gradients takes floating-point NumPy arrays, not {kind}")
    gap = 1 if array.flags.forc else 2
    wide = np.zeros_like(array, dtype=np.float64, shape=[gap * n for n in array.shape])
    wide = wide[(*[slice(None, None, -gap if s < 0 else gap) for s in array.strides], ...)]
    wide[...] = array
    return wide


def _as_list(outputs):
    outputs = list(outputs) if isinstance(outputs, tuple | list) else [outputs]
    if strange := [type(y).__name__ for y in outputs if not isinstance(y, Tensor)]:
        raise TypeError(f"the function must return tensors, not {strange[0]}: compute with tensors")
    return outputs


def _directions(array, rng):
    """Yield (direction, label, step factor) for every direction to check.

    The directions are the entries of a small array or random vectors for a large array.
    """
    if array.size <= ALL_ENTRIES:
        for index in np.ndindex(array.shape):
            direction = np.zeros_like(array)
            direction[index] = 1
            yield direction, f"entry {index}", max(1.0, abs(array[index]))
    else:
        for n in range(DIRECTIONS):
            direction = rng.standard_normal(array.shape)
            direction /= np.linalg.norm(direction)
            yield direction, f"random direction {n}", max(1.0, np.abs(array).max())


def _central_difference(value, array, direction, h):
    """Return (f(x + h d) − f(x − h d)) / 2h; `array` is modified in place and then restored."""
    saved = array.copy()
    array[...] = saved + h * direction
    above = value()
    array[...] = saved - h * direction
    below = value()
    array[...] = saved
    return (above - below) / (2 * h)
