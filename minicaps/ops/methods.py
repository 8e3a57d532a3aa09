"""The operators and methods of Tensor that NumPy users expect.

The methods are attached here rather than defined in the class because the ops depend on Tensor.
"""

from minicaps.backend import array_module
from minicaps.ops import math, product, reduce, shape
from minicaps.tensor import Tensor


def _compared(name):
    """Return an elementwise comparison that yields a plain boolean array without a gradient."""
    return lambda a, b: getattr(a.data, name)(b.data if isinstance(b, Tensor) else b)


def _unpacked(numbers):
    """Allow x.reshape(2, 3) as well as x.reshape((2, 3))."""
    return numbers[0] if len(numbers) == 1 and isinstance(numbers[0], tuple | list) else numbers


Tensor.__add__, Tensor.__radd__ = math.add, lambda a, b: math.add(b, a)
Tensor.__sub__, Tensor.__rsub__ = math.subtract, lambda a, b: math.subtract(b, a)
Tensor.__mul__, Tensor.__rmul__ = math.multiply, lambda a, b: math.multiply(b, a)
Tensor.__truediv__, Tensor.__rtruediv__ = math.divide, lambda a, b: math.divide(b, a)
Tensor.__pow__, Tensor.__rpow__ = math.power, lambda a, b: math.power(b, a)
Tensor.__matmul__, Tensor.__rmatmul__ = product.matmul, lambda a, b: product.matmul(b, a)
Tensor.__neg__, Tensor.__abs__, Tensor.__getitem__ = math.negative, math.abs, shape.getitem
Tensor.__lt__, Tensor.__le__ = _compared("__lt__"), _compared("__le__")
Tensor.__gt__, Tensor.__ge__ = _compared("__gt__"), _compared("__ge__")
Tensor.__eq__, Tensor.__ne__ = _compared("__eq__"), _compared("__ne__")
Tensor.exp, Tensor.log, Tensor.sqrt = math.exp, math.log, math.sqrt
Tensor.clip = lambda x, low=None, high=None: math.clip(x, low=low, high=high)
Tensor.sum = lambda x, axis=None, keepdims=False: reduce.sum(x, axis=axis, keepdims=keepdims)
Tensor.mean = lambda x, axis=None, keepdims=False: reduce.mean(x, axis=axis, keepdims=keepdims)
Tensor.max = lambda x, axis=None, keepdims=False: reduce.max(x, axis=axis, keepdims=keepdims)
Tensor.reshape = lambda x, *new: shape.reshape(x, shape=_unpacked(new))
Tensor.transpose = lambda x, *axes: shape.transpose(x, axes=_unpacked(axes) or None)
Tensor.T = property(shape.transpose, doc="The tensor with its axes reversed.")
Tensor.argmax = lambda x, axis=None: array_module(x.data).argmax(x.data, axis=axis)
Tensor.astype = lambda x, dtype: Tensor(x.data.astype(dtype))  # detached from the graph
