"""The graph that ops record, and its backward sweep.

A node is a step: what it came from and its pullback (vector-Jacobian product), which takes
g = ∂loss/∂value to ∂loss/∂argument. What all ops need on the way back is done here, once: summing
over broadcast axes, checking gradients, accumulating, skipping gradients nobody wants, and freeing
what a pullback captured as soon as it has run.

Pullbacks work on raw arrays and are not recorded: there are no second derivatives.
"""

import functools
import heapq
import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import numpy as np

from minicaps.backend import array_module, is_array

is_recording = ContextVar("recording", default=True)  # per thread and per task
observer = ContextVar("observer", default=None)  # of a profile: does (name, way, run), runs run()
_next_id = itertools.count().__next__  # order of creation is an order of dependence


@contextmanager
def recording(on):
    """Inside this block ops record a graph, or do not."""
    token = is_recording.set(on)
    try:
        yield
    finally:
        is_recording.reset(token)


def no_grad() -> AbstractContextManager[None]:
    """Inside this block ops record no graph: nothing to differentiate, nothing to keep."""
    return recording(False)


def observed(name, way, run):
    """Return run(), or what the observer makes of it; way: "forward" or "backward"."""
    watch = observer.get()
    return watch(name, way, run) if watch else run()


class Node:
    """A step of the graph: who it came from (`parents`) and how to go back (`pullback`).

    leaf: a weak reference to the tensor that gets the gradient, for the leaves of the graph.
    """

    __slots__ = ("dtype", "id", "leaf", "name", "parents", "pullback", "shape", "versions")

    def __init__(self, name, value, parents, pullback, leaf=None):
        self.id, self.name, self.parents, self.pullback = _next_id(), name, parents, pullback
        self.shape, self.dtype, self.leaf = value.shape, value.dtype, leaf
        self.versions = tuple(p and p.version() for p in parents)

    def version(self):
        """How often the data of this leaf was replaced; None if it is gone, or no leaf."""
        tensor = self.leaf and self.leaf()
        return None if tensor is None else tensor._version


class joint(NamedTuple):
    """Marks a pullback whose gradients share one sweep.

    sweep(g, wanted) returns one gradient for each positional argument; `wanted` is a tuple of
    booleans, and an entry that is not wanted may be None. The arrays must be distinct.
    """

    sweep: Callable


def backward(output, cotangent=None):
    """Sweep the graph from `output` to its leaves, adding to their `.grad`; frees the graph.

    cotangent: the gradient of the loss with respect to `output`, an array of its shape and dtype;
    may be left out for an output of one element, and is 1 then.
    """
    if output.node is None:
        raise RuntimeError("backward() on a tensor that depends on none with requires_grad=True")
    g = _initial_cotangent(output, cotangent)
    pending, queue = {output.node.id: (output.node, g)}, [-output.node.id]
    while queue:
        # The youngest node is always ready: whatever used its value was created later.
        node, g = pending.pop(-heapq.heappop(queue))
        if node.leaf is not None:
            _deposit(node, g)
            continue
        _check_unused(node)
        gradients = observed(node.name, "backward", functools.partial(_pull, node, g))
        for parent, gradient in zip(node.parents, gradients, strict=True):
            if parent is None:
                continue
            if parent.id in pending:
                gradient = as_array(pending[parent.id][1] + gradient)
            else:
                heapq.heappush(queue, -parent.id)
            pending[parent.id] = (parent, gradient)
        node.pullback, node.parents = None, ()  # frees what they hold


def _pull(node, g):
    """Run the pullback of `node`; return a gradient of its dtype and shape for each parent."""
    wanted = tuple(p is not None for p in node.parents)
    g = read_only(g.view())  # others may get it too
    if isinstance(node.pullback, joint):
        gradients = node.pullback.sweep(g, wanted)
        if len(gradients) != len(wanted):
            counts = f"{len(gradients)} gradients for {len(wanted)} inputs"
            raise TypeError(f"{node.name} returned {counts}")
    else:
        pulls = node.pullback if isinstance(node.pullback, tuple) else (node.pullback,)
        if len(pulls) != len(wanted):
            raise TypeError(
                f"{node.name} has {len(pulls)} pullbacks for {len(wanted)} arguments: write one for"
                " each, and make what is constant keyword-only (after a *)"
            )
        gradients = [pull(g) if want and pull else None for pull, want in zip(pulls, wanted)]  # noqa: B905 - counted above
    pairs = enumerate(zip(node.parents, gradients, strict=True))
    return [parent and _fitted(gradient, node, k, parent) for k, (parent, gradient) in pairs]


def _fitted(gradient, node, position, parent):
    """Sum `gradient` over broadcast axes; demand the shape and dtype of `parent`."""
    if gradient is None:
        raise TypeError(f"the pullback of {node.name} has no gradient for its argument {position}")
    gradient = as_array(gradient)
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


def _deposit(node, g):
    """Add to the `.grad` of a leaf, which belongs to its tensor alone and can be written to."""
    tensor = node.leaf()
    if tensor is not None:
        own = g if g.base is None else g.copy(order="K")
        tensor.grad = own if tensor.grad is None else as_array(tensor.grad + g)


# ---- checks


def _initial_cotangent(output, cotangent):
    if cotangent is None:
        if output.size != 1:
            raise ValueError(
                f"backward() on a tensor of shape {output.shape} needs a cotangent of that shape:"
                " pass it, or reduce the tensor to one number first"
            )
        return array_module(output.data).ones_like(output.data)
    g = cotangent
    if not is_array(g) or g.shape != output.shape or g.dtype != output.dtype:
        given = f"{g.shape} {g.dtype}" if is_array(g) else type(g).__name__
        raise ValueError(f"the cotangent is {given}, the tensor {output.shape} {output.dtype}")
    return g.view()  # its owner may write to it


def _check_unused(node):
    """Refuse a node that was freed, or whose inputs have other values by now."""
    if node.pullback is None:
        raise RuntimeError(
            f"backward() reached {node.name}, whose graph an earlier backward() has freed:"
            " compute the output again, or add the losses and call backward() once"
        )
    for parent, version in zip(node.parents, node.versions, strict=True):
        if parent and parent.version() not in (version, None):
            raise RuntimeError(
                f"the data of an input of {node.name} was replaced between the forward and the"
                " backward pass: its gradient would be wrong"
            )


# ---- arrays


def unbroadcast(g, shape):
    """Sum `g` over the axes that broadcasting added to, or stretched from, `shape`."""
    if g.shape == shape:
        return g
    added = g.ndim - len(shape)
    stretched = tuple(i + added for i, n in enumerate(shape) if n == 1 and g.shape[i + added] != 1)
    summed = g.sum(axis=tuple(range(added)) + stretched, keepdims=True)
    return summed.reshape(summed.shape[added:])


def as_array(value):
    """Return `value` as a plain array: not a scalar, as NumPy's reductions give, nor a matrix."""
    return value if array_module(value) is not np else np.asarray(value)


def read_only(array):
    """Forbid writing through `array` (on a GPU nothing can)."""
    if isinstance(array, np.ndarray):
        array.flags.writeable = False
    return array
