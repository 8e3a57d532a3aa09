"""Reverse-mode differentiation: tensors, the graph that ops record, and its backward sweep.

An op is a function on raw arrays that returns its value and its pullback (vector-Jacobian
product): given g = ∂loss/∂value, the pullback returns ∂loss/∂argument. Everything that all ops
need is done here, once: wrapping, summing over broadcast axes, checking gradients, accumulating,
skipping gradients nobody wants, and freeing what a pullback captured as soon as it has run.

Pullbacks work on raw arrays and are not recorded: there are no second derivatives.
"""

import functools
import heapq
import inspect
import itertools
import weakref
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from minicaps.backend import array_module, device_of, is_array, to_host

_recording = ContextVar("recording", default=True)  # per thread and per task
_next_id = itertools.count().__next__  # order of creation is an order of dependence


@contextmanager
def recording(on):
    """Inside this block ops record a graph, or do not."""
    token = _recording.set(on)
    try:
        yield
    finally:
        _recording.reset(token)


def no_grad():
    """Inside this block ops record no graph: nothing to differentiate, nothing to keep."""
    return recording(False)


class Tensor:
    """An array that remembers how it was computed.

    data: a NumPy or CuPy array (kept, not copied), a scalar or a nested list. The graph keeps it
    too: do not write into an array between the forward and the backward pass. Writing into a
    result, and replacing `.data`, is noticed; writing into an array that you made is not.
    requires_grad: ask `backward` to leave ∂loss/∂self in `.grad`; only for floating-point data.
    """

    __slots__ = ("__weakref__", "_data", "_version", "grad", "node")
    __array_ufunc__ = None  # makes `array * tensor` call Tensor.__rmul__

    def __init__(self, data, requires_grad=False):
        if isinstance(data, Tensor):
            raise TypeError("the data of a Tensor is already a Tensor: use it, or .detach() it")
        self._data = _as_array(data)
        if self._data.dtype.kind not in "biuf":
            raise TypeError(
                f"a Tensor holds real numbers, integers or booleans, not {self._data.dtype} data"
            )
        self._version, self.grad, self.node = 0, None, None
        if requires_grad:
            if self.dtype.kind != "f":
                raise TypeError(
                    f"only floating-point tensors can require a gradient, this one is {self.dtype}:"
                    " convert its data with .astype(float)"
                )
            self._make_leaf()

    def _make_leaf(self):
        self.grad, self.node = None, Node("leaf", self._data, (), None, weakref.ref(self))

    @property
    def data(self):
        """The raw array. Assigning (`p.data = p.data - step`) replaces it, same shape and dtype."""
        return self._data

    @data.setter
    def data(self, array):
        array = _as_array(array)
        if self.node is not None and self.node.leaf is None:
            raise RuntimeError("the data of a result cannot be replaced: the graph holds it")
        if array.shape != self.shape or array.dtype != self.dtype:
            raise ValueError(
                f"the new data is {array.shape} {array.dtype}, this tensor is {self.shape}"
                f" {self.dtype}: make a new Tensor instead"
            )
        self._data = array
        self._version += 1

    shape = property(lambda self: self._data.shape)
    dtype = property(lambda self: self._data.dtype)
    ndim = property(lambda self: self._data.ndim)
    size = property(lambda self: self._data.size)
    device = property(lambda self: device_of(self._data), doc='"cpu" or "gpu"')
    requires_grad = property(lambda self: self.node is not None)

    def move(self, array):
        """Make a leaf hold `array`, of the same shape on any device in any precision.

        It stays the same tensor for all who hold it; its gradient is forgotten.
        """
        self._data = _as_array(array)
        self._make_leaf()

    def detach(self):
        """Return a tensor of the same data, to be read only, that `backward` does not pass."""
        return Tensor(_read_only(self._data.view()))

    def __reduce__(self):
        """Copy and pickle leaves as leaves of their own; a result cannot leave its graph."""
        if self.node is not None and self.node.leaf is None:
            raise TypeError("a tensor that belongs to a graph cannot be copied: use .detach()")
        return Tensor, (self._data, self.requires_grad)

    def numpy(self):
        """Return the data as a NumPy array (shared memory on the CPU, a copy from the GPU)."""
        return to_host(self._data)

    def item(self):
        """Return the only element as a Python number (waits for the device)."""
        return self._data.item()

    def backward(self, cotangent=None):
        """Add ∂(cotangent · self)/∂leaf to `.grad` of every leaf; see `backward`."""
        backward(self, cotangent)

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
            raise ValueError(
                f"the truth value of a tensor of shape {self.shape} is ambiguous: use .data.any()"
                " or .data.all()"
            )
        return bool(self._data)

    def __float__(self):
        return float(self.item())

    def __int__(self):
        return int(self.item())

    def __setitem__(self, index, value):
        raise TypeError(
            "tensors are not assigned to in place, since the graph may hold the old values: build"
            " a new one with ops.where, or write to .data outside a graph"
        )

    def __array__(self, *args, **kwargs):
        raise TypeError(
            "a Tensor does not turn into an array silently (its gradient would be lost):"
            " use .data or .numpy(), or a function of minicaps.ops"
        )


def _as_array(value):
    """Return `value` as a plain array: not a scalar, as NumPy's reductions give, nor a matrix."""
    return value if array_module(value) is not np else np.asarray(value)


def _read_only(array):
    """Forbid writing through `array` (on a GPU nothing can)."""
    if isinstance(array, np.ndarray):
        array.flags.writeable = False
    return array


class Node:
    """A step of the graph: who it came from (`parents`) and how to go back (`pullback`)."""

    __slots__ = ("dtype", "id", "leaf", "name", "parents", "pullback", "shape", "versions")

    def __init__(self, name, value, parents, pullback, leaf=None):
        self.id, self.name, self.parents, self.pullback = _next_id(), name, parents, pullback
        self.shape, self.dtype, self.leaf = value.shape, value.dtype, leaf
        self.versions = tuple(p and p.leaf and _version(p) for p in parents)


def _version(leaf_node):
    """How often the data of this leaf was replaced (None when the tensor is gone)."""
    tensor = leaf_node.leaf()
    return None if tensor is None else tensor._version


class joint:
    """Marks a pullback whose gradients share one sweep.

    sweep(g, wanted) returns one gradient for each positional argument; `wanted` is a tuple of
    booleans, and an entry that is not wanted may be None. The arrays must be distinct.
    """

    __slots__ = ("sweep",)

    def __init__(self, sweep):
        self.sweep = sweep


def op(function):
    """Make a function on arrays, returning (value, pullback), differentiable on tensors.

    Positional arguments can carry gradients, keyword-only arguments are static. The pullback is
    a callable g -> gradient for an op of one argument, a tuple of them for several (None where
    no gradient exists), or `joint(sweep)`.

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
        value, pullback = _called(function, arrays, static)
        parents = tuple(a.node if isinstance(a, Tensor) else None for a in args)
        out = Tensor(value)
        if _recording.get() and any(parents):
            if any(value is a for a in arrays):
                out._data = value = value.view()
            _read_only(value)  # writing would damage what the graph captured
            out.node = Node(function.__name__, value, parents, pullback)
        return out

    REGISTRY[function.__name__] = differentiable
    return differentiable


REGISTRY = {}  # name -> op: the tests walk it and demand a gradient check of each


def _called(function, arrays, static):
    """Run an op's function and look at what it returns: one array, and a pullback."""
    returned = function(*arrays, **static)
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise TypeError(f"{function.__name__} must return two things: its value and its pullback")
    value, pullback = returned
    if isinstance(value, tuple | list):
        raise TypeError(f"the value of {function.__name__} must be one array, not several")
    return _as_array(value), pullback


def _given_by_name(missing, static):
    """Take the positional parameters that are `missing` from `static` or from their defaults."""
    values = ()
    for p in missing:
        if p.name not in static and p.default is p.empty:
            break  # the call of the function says what is missing
        values += (static.pop(p.name, p.default),)
    return values


def _plain(value):
    """Let NumPy's scalars, like Python's, follow the dtype of the arrays."""
    return value.item() if isinstance(value, np.generic) else value


def _raw(argument, name):
    """Unwrap a tensor; refuse what is no array and no number."""
    if isinstance(argument, Tensor):
        return argument._data
    argument = _plain(argument)
    if is_array(argument):
        return _as_array(argument)
    if argument is None or isinstance(argument, bool | int | float):
        return argument
    raise TypeError(
        f"{name} got a {type(argument).__name__}; it takes tensors, arrays and numbers:"
        " wrap lists in minicaps.Tensor"
    )


def _check_one_device(arrays, name):
    devices = {device_of(a) for a in arrays if is_array(a)}
    if len(devices) > 1:
        raise TypeError(
            f"{name} got arrays on the CPU and on the GPU: copy them to one device first,"
            " with Device.put or Module.to"
        )


def backward(output, cotangent=None):
    """Sweep the graph from `output` to its leaves, adding to their `.grad`; frees the graph.

    cotangent: the gradient of the loss with respect to `output`, an array or tensor of its shape
    and dtype; may be left out for an output of one element, and is 1 then.
    """
    if output.node is None:
        raise RuntimeError(
            "backward() on a tensor that depends on no tensor with requires_grad=True"
            " (or was computed under no_grad)"
        )
    g = _initial_cotangent(output, cotangent)
    # The node created last is always ready: whatever used its value was created later.
    pending = {output.node.id: (output.node, _own_if_leaf(output.node, g, g))}
    queue = [-output.node.id]
    while queue:
        node, g = pending.pop(-heapq.heappop(queue))
        if node.leaf is not None:
            _deposit(node, g)
            continue
        parents = node.parents
        gradients = _pull(node, g)
        for parent, gradient in zip(parents, gradients, strict=True):
            if parent is None:
                continue
            if parent.id not in pending:
                heapq.heappush(queue, -parent.id)
                pending[parent.id] = (parent, _own_if_leaf(parent, gradient, g))
            else:
                total = _as_array(pending[parent.id][1] + gradient)
                pending[parent.id] = (parent, total)


def _initial_cotangent(output, cotangent):
    if cotangent is None:
        if output.size != 1:
            raise ValueError(
                f"backward() on a tensor of shape {output.shape} needs a cotangent of that shape:"
                " pass it, or reduce the tensor to one number first"
            )
        return array_module(output.data).ones_like(output.data)
    g = cotangent.data if isinstance(cotangent, Tensor) else cotangent
    if not is_array(g) or g.shape != output.shape or g.dtype != output.dtype:
        given = f"{g.shape} {g.dtype}" if is_array(g) else type(g).__name__
        raise ValueError(f"the cotangent is {given}, the tensor {output.shape} {output.dtype}")
    return g


def _pull(node, g):
    """Run the pullback of `node` and free it; return one checked gradient for each parent."""
    if node.pullback is None:
        raise RuntimeError(
            f"backward() reached {node.name}, whose graph an earlier backward() has freed:"
            " compute the output again, or add the losses and call backward() once"
        )
    for parent, version in zip(node.parents, node.versions, strict=True):
        if parent and parent.leaf and _version(parent) not in (version, None):
            raise RuntimeError(
                f"the data of an input of {node.name} was replaced between the forward and the"
                " backward pass: its gradient would be wrong"
            )
    wanted = tuple(p is not None for p in node.parents)
    g = _read_only(g.view())  # others may get it too
    if isinstance(node.pullback, joint):
        gradients = node.pullback.sweep(g, wanted)
    else:
        pulls = node.pullback if isinstance(node.pullback, tuple) else (node.pullback,)
        if len(pulls) != len(wanted):
            raise TypeError(
                f"{node.name} has {len(pulls)} pullbacks for {len(wanted)} arguments: write one for"
                " each, and make what is constant keyword-only (after a *)"
            )
        for position, (pull, want) in enumerate(zip(pulls, wanted, strict=True)):
            if want and pull is None:
                raise TypeError(f"{node.name} has no gradient for its argument {position}")
        gradients = [pull(g) if want else None for pull, want in zip(pulls, wanted, strict=True)]
    if len(gradients) != len(wanted):
        raise TypeError(f"{node.name} returned {len(gradients)} gradients for {len(wanted)} inputs")
    gradients = [
        _checked(node, parent, gradient)
        for parent, gradient in zip(node.parents, gradients, strict=True)
    ]
    node.pullback, node.parents = None, ()
    return gradients


def _checked(node, parent, gradient):
    """Sum `gradient` over broadcast axes; demand the shape and dtype of `parent`."""
    if parent is None:
        return None
    if gradient is None:
        raise TypeError(f"the pullback of {node.name} returned None where a gradient is wanted")
    gradient = _as_array(gradient)
    if gradient.ndim >= len(parent.shape):
        gradient = unbroadcast(gradient, parent.shape)
    if gradient.dtype != parent.dtype and node.dtype != parent.dtype:
        gradient = gradient.astype(parent.dtype)  # the op mixed precisions
    if gradient.shape != parent.shape or gradient.dtype != parent.dtype:
        raise TypeError(
            f"the pullback of {node.name} returned a {gradient.shape} {gradient.dtype} gradient"
            f" for a {parent.shape} {parent.dtype} input"
        )
    return gradient


def unbroadcast(g, shape):
    """Sum `g` over the axes that broadcasting added to, or stretched from, `shape`."""
    if g.shape == shape:
        return g
    added = g.ndim - len(shape)
    stretched = tuple(i + added for i, n in enumerate(shape) if n == 1 and g.shape[i + added] != 1)
    summed = g.sum(axis=tuple(range(added)) + stretched, keepdims=True)
    return summed.reshape(summed.shape[added:])


def _own_if_leaf(parent, gradient, g):
    """Copy what a leaf would share: `.grad` belongs to its tensor alone and can be written to."""
    if parent.leaf is not None and (gradient is g or gradient.base is not None):
        return gradient.copy(order="K")
    return gradient


def _deposit(node, g):
    tensor = node.leaf()
    if tensor is not None:
        tensor.grad = g if tensor.grad is None else _as_array(tensor.grad + g)
