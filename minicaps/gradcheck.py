"""Check a gradient against central differences: the test that a pullback is what it says.

    >>> import numpy as np
    >>> from minicaps import ops
    >>> from minicaps.gradcheck import check_gradients
    >>> check_gradients(ops.squash, np.array([[3.0, 4.0], [0.0, 1.0]]))

The cotangent is random. All ones would be blind to whatever adds up to zero: the gradient of
sum(softmax(x)) is zero, so any multiple of a right one would pass.
"""

from collections.abc import Callable

import numpy as np

from minicaps.backend import Array
from minicaps.graph import no_grad
from minicaps.tensor import Tensor

ALL_ENTRIES = 200  # inputs up to this size are checked entry by entry
TINY = np.finfo(np.float64).tiny  # keeps 0/0 away where a function is 0 throughout
DIRECTIONS = 20  # larger ones along this many random directions


class GradientError(AssertionError):
    """A gradient differs from the central differences."""


def check_gradients(
    function: Callable, *arrays: Array, step: float = 1e-5, rtol: float = 1e-5, atol: float = 1e-7,
    seed: int = 0,
) -> None:  # fmt: skip
    """Compare the gradients of `function` with respect to all `arrays` with central differences.

    function: takes tensors, one for each array, and returns a tensor of any shape, or several in
        a tuple or list. It must be deterministic and smooth within `step` of the arrays: not
        `squash` of a zero vector, nor `relu` of a 0.
    arrays: floating-point NumPy arrays; they are copied and widened to float64, and the copies are
        transposed, strided or reversed in memory where the arrays are.
    step: h in (f(x+h) − f(x−h)) / 2h, taken relative to max(1, |x|).
    rtol, atol: how far the two may differ: rtol · |value| + atol · the largest entry of the
        argument's gradient, and what rounding of the function's value makes of the difference.

    Each gradient must also come out the same when it alone is wanted.

    Raises GradientError naming the worst entry, both values and the step; TypeError for arrays
    that are not floating-point, and for a function that returns something else than tensors.
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
        raise GradientError("the function's value is not finite here, so it has no gradient")
    worst, complaint = 1.0, None
    for position, (array, gradient) in enumerate(zip(arrays, gradients, strict=True)):
        scale = np.abs(gradient[np.isfinite(gradient)]).max(initial=0)
        (alone,) = _gradients(function, arrays, cotangents, [position])
        if not np.allclose(alone, gradient, rtol=rtol, atol=atol * scale, equal_nan=True):
            where = f"argument {position} {array.shape}"
            raise GradientError(f"{where}: the gradient is another when it alone is wanted")
        for direction, label, length in _directions(array, rng):
            moved, h = direction != 0, step * length
            found = float(gradient[moved] @ direction[moved])
            numeric = _central_difference(value, array, direction, h)
            rounding = 8 * np.finfo(np.float64).eps * size / h
            apart = abs(found - numeric) / (atol * scale + rtol * abs(numeric) + rounding + TINY)
            apart = np.inf if np.isnan(apart) else apart
            if apart > worst:
                says = f"the gradient says {found:.9g}, central differences"
                says = f"{label}: {says} with step {h:.1g} say {numeric:.9g}"
                worst, complaint = apart, f"argument {position} {array.shape}, {says}"
    if complaint:
        raise GradientError(complaint)


def _gradients(function, arrays, cotangents, wanted):
    """Return the gradients of the arguments `wanted`, by the pullbacks."""
    tensors = [Tensor(a, requires_grad=i in wanted) for i, a in enumerate(arrays)]
    outputs = _as_list(function(*tensors))
    terms = [(y * c).sum() for y, c in zip(outputs, cotangents, strict=True)]
    if (total := sum(terms[1:], terms[0])).requires_grad:
        total.backward()
    grads = [tensors[i].grad for i in wanted]
    return [
        np.zeros_like(arrays[i]) if g is None else g for i, g in zip(wanted, grads, strict=True)
    ]


def _widened(array):
    """Copy to float64, transposed, strided or reversed in memory where `array` is."""
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
    """Yield (direction, its name, step factor): each entry of a small array, else random ones."""
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
    """(f(x + h d) − f(x − h d)) / 2h, moving `array` in place and putting it back."""
    saved = array.copy()
    array[...] = saved + h * direction
    above = value()
    array[...] = saved - h * direction
    below = value()
    array[...] = saved
    return (above - below) / (2 * h)
