"""Tensors and the decorator `op`, which makes functions of arrays differentiable."""

import functools
import inspect
import weakref

import numpy as np

from minicaps.backend import as_array, device_of, is_array, to_host
from minicaps.graph import Node, backward, is_recording, observed, read_only


class Tensor:
    """An array that records how it was computed so that it can be differentiated.

    data: a NumPy or CuPy array (not copied), a scalar or a nested list. The graph refers to the
    same array, so do not modify the array between the forward and the backward pass. Writing to a
    result that requires a gradient and replacing `.data` are detected, but other modifications are
    not. requires_grad: whether `backward` stores ∂loss/∂self in `.grad`; only for floating-point
    data.
    """

    __slots__ = ("__weakref__", "_data", "_version", "grad", "node")
    __array_ufunc__ = None  # so that `array * tensor` calls Tensor.__rmul__

    def __init__(self, data, requires_grad=False):
        if isinstance(data, Tensor):
            raise TypeError("the data is already a Tensor: use it directly, or call its .detach()")
        self._data = as_array(data)
        if self._data.dtype.kind not in "biuf":
            raise TypeError(f"a Tensor holds real numbers, not {self._data.dtype} data")
        self._version, self.grad, self.node = 0, None, None
        if requires_grad:
            if self.dtype.kind != "f":
                raise TypeError(
                    "only floating-point tensors can require a gradient, but this one is"
                    f" {self.dtype}: convert its data with .astype(float)"
                )
            self._make_leaf()

    def _make_leaf(self):
        self.grad, self.node = None, Node("leaf", self._data, (), None, weakref.ref(self))

    @property
    def data(self):
        """The underlying array.

        The array can be replaced by another of the same shape and dtype, as in
        `p.data = p.data - step`.
        """
        return self._data

    @data.setter
    def data(self, array):
        array = as_array(array)
        if self.requires_grad and not self.is_leaf:
            raise RuntimeError("the data of a result cannot be replaced: the graph refers to it")
        if array.shape != self.shape or array.dtype != self.dtype:
            new, old = f"{array.shape} {array.dtype}", f"{self.shape} {self.dtype}"
            raise ValueError(f"the new data is {new}, but this tensor is {old}: make a new Tensor")
        self._data = array
        self._version += 1

    shape = property(lambda self: self._data.shape)
    dtype = property(lambda self: self._data.dtype)
    ndim = property(lambda self: self._data.ndim)
    size = property(lambda self: self._data.size)
    device = property(lambda self: device_of(self._data), doc='The device, "cpu" or "gpu".')
    requires_grad = property(lambda self: self.node is not None)

    @property
    def is_leaf(self):
        """Whether this tensor was created with requires_grad=True and therefore has a `.grad`."""
        return self.node is not None and self.node.leaf is not None

    def move(self, array):
        """Replace a leaf's data with an array of the same shape on any device and in any precision.

        The tensor keeps its identity, so existing references to it remain valid. Its gradient is
        discarded.
        """
        array = as_array(array)
        if not self.is_leaf:
            raise TypeError("only a leaf, a tensor created with requires_grad=True, can be moved")
        if array.shape != self.shape or array.dtype.kind != "f":
            raise ValueError(f"a {self.shape} leaf cannot become {array.dtype} {array.shape}")
        self._data = array
        self._version += 1
        self._make_leaf()

    def detach(self):
        """Return a read-only tensor that shares the data but is detached from the graph."""
        return Tensor(read_only(self._data.view()))

    def __reduce__(self):
        """Support copying and pickling; a leaf becomes a new leaf, and a result loses its graph."""
        return Tensor, (self._data, self.is_leaf)

    def numpy(self):
        """Return the data as a NumPy array (shared memory on the CPU, a copy from a GPU)."""
        return to_host(self._data)

    def item(self):
        """Wait for the device and return the only element as a Python number."""
        return self._data.item()

    def backward(self, cotangent=None):
        """Add ∂(cotangent · self)/∂leaf to the `.grad` of every leaf; see `graph.backward`."""
        backward(self, cotangent.data if isinstance(cotangent, Tensor) else cotangent)

    def __repr__(self):
        body = np.array2string(self.numpy(), precision=4, threshold=20, separator=", ")
        wants = ", requires_grad=True" if self.requires_grad else ""
        return f"Tensor({body}, shape={self.shape}, {self.dtype}, {self.device}{wants})"

    def __format__(self, spec):
        return format(self.item(), spec) if spec else repr(self)

    def __len__(self):
        if self.ndim == 0:
            raise TypeError("a 0-d tensor has no length")
        return self.shape[0]

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __bool__(self):
        if self.size != 1:
            raise ValueError(f"the truth value of shape {self.shape} is ambiguous: use .data.any()")
        return bool(self._data)

    def __float__(self):
        return float(self.item())

    def __int__(self):
        return int(self.item())

    def __setitem__(self, index, value):
        raise TypeError(
            "tensors cannot be modified in place, because the graph may need the old values: create"
            " a new one with ops.where, or write to .data outside a graph"
        )

    def __array__(self, *args, **kwargs):
        raise TypeError("cannot convert a Tensor to an array: use .data, .numpy() or minicaps.ops")


def op(function):
    """Turn a function of arrays that returns (value, pullback) into a function of tensors.

    Positional arguments can have gradients; keyword-only arguments are static. The pullback is a
    callable g -> gradient for an op of one argument, a tuple of callables for several (None where
    no gradient exists), or `joint(sweep)`. Any values after the pullback are returned unchanged
    along with the tensor and have no gradient. The original function of arrays is available as the
    attribute `raw` of the result.

        @op
        def multiply(a, b):
            return a * b, (lambda g: g * b, lambda g: g * a)
    """

    parameters = inspect.signature(function).parameters.values()
    positional = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]

    @functools.wraps(function)
    def differentiable(*args, **static):
        args += _given_by_name(positional[len(args) :], static)
        static = {name: _plain(value) for name, value in static.items()}
        arrays = [_raw(a, function.__name__) for a in args]
        if not any(map(is_array, arrays)):
            arrays = [a if a is None else np.asarray(a) for a in arrays]
        _check_one_device(arrays, function.__name__)
        run = functools.partial(function, *arrays, **static)
        returned = observed(function.__name__, "forward", run)
        value, pullback, *extras = _checked(returned, function.__name__)
        parents = tuple(a.node if isinstance(a, Tensor) else None for a in args)
        out = Tensor(value)
        if is_recording.get() and any(parents):
            if any(value is a for a in arrays):
                out._data = value = value.view()
            read_only(value)  # a write would corrupt the values in the graph
            out.node = Node(function.__name__, value, parents, pullback)
        return (out, *extras) if extras else out

    differentiable.raw = function
    REGISTRY[function.__name__] = differentiable
    return differentiable


REGISTRY = {}  # name -> op; the tests require a gradient check for each entry


def _checked(returned, name):
    """Check that an op's function returned an array, a pullback and optional extra values."""
    if not isinstance(returned, tuple) or len(returned) < 2 or any(map(callable, returned[2:])):
        raise TypeError(f"{name} must return a tuple of its value and its pullback")
    value, *rest = returned
    if isinstance(value, tuple | list):
        raise TypeError(f"the value of {name} must be one array, not several")
    return as_array(value), *rest


def _given_by_name(missing, static):
    """Return the `missing` positional arguments, which are taken from `static` or the defaults."""
    values = ()
    for p in missing:
        if p.name not in static and p.default is p.empty:
            break  # calling the function raises the right TypeError
        values += (static.pop(p.name, p.default),)
    return values


def _plain(value):
    """Convert NumPy scalars to Python scalars, which adopt the dtype of the arrays."""
    return value.item() if isinstance(value, np.generic) else value


def _raw(argument, name):
    """Return the array or number in `argument`; raise TypeError for arguments of other types."""
    if isinstance(argument, Tensor):
        return argument._data
    argument = _plain(argument)
    if is_array(argument):
        return as_array(argument)
    if argument is None or isinstance(argument, bool | int | float):
        return argument
    raise TypeError(
        f"{name} got a {type(argument).__name__}; it takes tensors, arrays and numbers:"
        " wrap lists in minicaps.Tensor"
    )


def _check_one_device(arrays, name):
    devices = {device_of(a) for a in arrays if is_array(a)}
    if len(devices) > 1:
        raise TypeError(f"{name} got arrays on the CPU and on the GPU: use Device.put or Module.to")
