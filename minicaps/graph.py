"""The computation graph that ops record, and the backward pass through this graph.

A node represents one operation. Each node stores its parents and its pullback (vector-Jacobian
product), which maps g = ∂loss/∂value to ∂loss/∂argument. The tasks that all ops share in the
backward pass are implemented here: summing over broadcast axes, checking and accumulating
gradients, skipping gradients that are not required, and freeing the arrays of a pullback as soon as
it has run.

Pullbacks operate on raw arrays and are not recorded, so second derivatives are not available.
"""

import functools
import heapq
import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import numpy as np

from minicaps.backend import array_module, as_array, is_array
from minicaps.sums import added, selected, total

is_recording = ContextVar("recording", default=True)  # per thread and per task
observer = ContextVar("observer", default=None)  # a profiler's observer(name, way, run) calls run()
_next_id = itertools.count().__next__  # a node depends only on nodes with smaller numbers


@contextmanager
def recording(on):
    """Context manager that turns graph recording on or off."""
    token = is_recording.set(on)
    try:
        yield
    finally:
        is_recording.reset(token)


def no_grad() -> AbstractContextManager[None]:
    """Context manager that disables graph recording; nothing is kept for a backward pass."""
    return recording(False)


def observed(name, way, run):
    """Call run(), using the observer if one is set; `way` is "forward" or "backward"."""
    watch = observer.get()
    return watch(name, way, run) if watch else run()


class Node:
    """A node of the graph, which stores the nodes of its inputs (`parents`) and its `pullback`.

    leaf: for leaves of the graph, a weak reference to the tensor that receives the gradient.
    """

    __slots__ = ("dtype", "id", "leaf", "name", "parents", "pullback", "shape", "versions")

    def __init__(self, name, value, parents, pullback, leaf=None):
        self.id, self.name, self.parents, self.pullback = _next_id(), name, parents, pullback
        self.shape, self.dtype, self.leaf = value.shape, value.dtype, leaf
        self.versions = tuple(p and p.version() for p in parents)

    def version(self):
        """Return how many times the leaf's data was replaced, or None if there is no live leaf."""
        tensor = self.leaf and self.leaf()
        return None if tensor is None else tensor._version


class joint(NamedTuple):
    """A pullback that computes the gradients with respect to all arguments together.

    sweep(g, wanted) returns one gradient for each positional argument. `wanted` is a tuple of
    booleans that specifies which gradients are required; the others may be None. The returned
    arrays must be distinct.
    """

    sweep: Callable


def backward(output, cotangent=None):
    """Propagate gradients from `output` to the leaves, add them to `.grad`, and free the graph.

    cotangent: the gradient of the loss with respect to `output`, an array of the same shape and
    dtype; it may be omitted if `output` has a single element and then defaults to 1.
    """
    if output.node is None:
        raise RuntimeError("backward() needs a tensor that depends on one with requires_grad=True")
    g = _initial_cotangent(output, cotangent)
    pending, queue, own = {output.node.id: (output.node, g)}, [-output.node.id], set()
    while queue:
        # The newest node is always ready, because all nodes that use its value are newer.
        node, g = pending.pop(-heapq.heappop(queue))
        own.discard(node.id)
        if node.leaf is not None:
            _deposit(node, g)
            continue
        _check_unused(node)
        gradients = observed(node.name, "backward", functools.partial(_pull, node, g))
        for parent, gradient in zip(node.parents, gradients, strict=True):
            if parent is None:
                continue
            if parent.id not in pending:
                heapq.heappush(queue, -parent.id)
            so_far = pending.get(parent.id, (parent, None))[1]
            pending[parent.id] = parent, added(so_far, gradient, parent.id, own)
        node.pullback, node.parents = None, ()  # release the arrays that they hold


def _pull(node, g):
    """Run the pullback of `node`; return one gradient per parent with matching shape and dtype."""
    wanted = tuple(p is not None for p in node.parents)
    g = read_only(g.view())  # other pullbacks may receive it as well
    if isinstance(node.pullback, joint):
        gradients = node.pullback.sweep(g, wanted)
        if len(gradients) != len(wanted):
            counts = f"{len(gradients)} gradients for {len(wanted)} inputs"
            raise TypeError(f"{node.name} returned {counts}")
    else:
        pulls = node.pullback if isinstance(node.pullback, tuple) else (node.pullback,)
        if len(pulls) != len(wanted):
            raise TypeError(
                f"{node.name} has {len(pulls)} pullbacks for {len(wanted)} arguments: provide one"
                " for each, and make constant arguments keyword-only (after a *)"
            )
        gradients = [pull(g) if want and pull else None for pull, want in zip(pulls, wanted)]  # noqa: B905 - lengths checked
    pairs = enumerate(zip(node.parents, gradients, strict=True))
    return [parent and _fitted(gradient, node, k, parent) for k, (parent, gradient) in pairs]


def _fitted(gradient, node, position, parent):
    """Sum `gradient` over the broadcast axes and check its shape and dtype against `parent`."""
    if gradient is None:
        raise TypeError(f"the pullback of {node.name} gives no gradient for argument {position}")
    if isinstance(gradient, selected):
        return gradient
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
    """Add g to the `.grad` of a leaf, which is a writable array not shared with other tensors."""
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
                " pass one, or reduce the tensor to a single number first"
            )
        return array_module(output.data).ones_like(output.data)
    g = cotangent
    if not is_array(g) or g.shape != output.shape or g.dtype != output.dtype:
        given = f"{g.shape} {g.dtype}" if is_array(g) else type(g).__name__
        raise ValueError(f"the cotangent is {given}, but the tensor {output.shape} {output.dtype}")
    return g.view()  # a view, as the caller may write to the array


def _check_unused(node):
    """Raise RuntimeError if the node was freed or the values of its inputs have changed."""
    if node.pullback is None:
        raise RuntimeError(
            f"backward() reached {node.name}, whose graph was freed by an earlier backward():"
            " recompute the output, or add the losses and call backward() once"
        )
    for parent, version in zip(node.parents, node.versions, strict=True):
        if parent and parent.version() not in (version, None):
            raise RuntimeError(
                f"the data of an input of {node.name} was replaced between the forward and the"
                " backward pass, so its gradient would be wrong: repeat the forward pass"
            )


# ---- arrays


def unbroadcast(g, shape):
    """Sum `g` over the axes that were added or stretched by broadcasting from `shape`."""
    if g.shape == shape:
        return g
    added = g.ndim - len(shape)
    stretched = tuple(i + added for i, n in enumerate(shape) if n == 1 and g.shape[i + added] != 1)
    summed = total(g, tuple(range(added)) + stretched, keepdims=True)
    return summed.reshape(summed.shape[added:])


def read_only(array):
    """Make `array` read-only if it is on the CPU, and return it."""
    if isinstance(array, np.ndarray):
        array.flags.writeable = False
    return array
