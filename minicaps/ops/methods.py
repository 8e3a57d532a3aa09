"""Give Tensor the operators and methods that a NumPy user expects."""

from minicaps.backend import array_module
from minicaps.ops import math, product, reduce, shape
from minicaps.tensor import Tensor


def _reversed(function):
    return lambda self, other: function(other, self)


def _comparison(name):
    """Compare elementwise; the answer is a plain boolean array, which has no gradient."""

    def compare(self, other):
        other = other.data if isinstance(other, Tensor) else other
        return getattr(self.data, name)(other)

    return compare


def _unpacked(numbers):
    """Allow x.reshape(2, 3) beside x.reshape((2, 3))."""
    return numbers[0] if len(numbers) == 1 and isinstance(numbers[0], tuple | list) else numbers


def _astype(self, dtype):
    """Return a tensor of another dtype, detached from the graph."""
    return Tensor(self.data.astype(dtype))


_METHODS = {
    "__neg__": math.negative,
    "__abs__": math.abs,
    "__getitem__": shape.getitem,
    "exp": math.exp,
    "log": math.log,
    "sqrt": math.sqrt,
    "clip": lambda self, low=None, high=None: math.clip(self, low=low, high=high),
    "sum": lambda self, axis=None, keepdims=False: reduce.sum(self, axis=axis, keepdims=keepdims),
    "mean": lambda self, axis=None, keepdims=False: reduce.mean(self, axis=axis, keepdims=keepdims),
    "max": lambda self, axis=None, keepdims=False: reduce.max(self, axis=axis, keepdims=keepdims),
    "reshape": lambda self, *new: shape.reshape(self, shape=_unpacked(new)),
    "transpose": lambda self, *axes: shape.transpose(self, axes=_unpacked(axes) or None),
    "argmax": lambda self, axis=None: array_module(self.data).argmax(self.data, axis=axis),
    "astype": _astype,
}

for _name, _function in {
    "add": math.add,
    "sub": math.subtract,
    "mul": math.multiply,
    "truediv": math.divide,
    "pow": math.power,
    "matmul": product.matmul,
}.items():
    _METHODS[f"__{_name}__"] = _function
    _METHODS[f"__r{_name}__"] = _reversed(_function)

for _name in ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__"):
    _METHODS[_name] = _comparison(_name)

for _name, _function in _METHODS.items():
    setattr(Tensor, _name, _function)
Tensor.T = property(shape.transpose, doc="The tensor with its axes reversed.")
