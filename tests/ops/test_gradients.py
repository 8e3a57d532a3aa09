"""Check every gradient against central differences, and every check with a wrong gradient."""

import importlib
import pkgutil
from contextlib import contextmanager

import numpy as np
import pytest
from gradient_cases import CASES
from hypothesis import given, settings
from hypothesis import strategies as st
from tensors import differentiate

import minicaps
from minicaps import graph, ops
from minicaps.gradcheck import GradientError, check_gradients
from minicaps.graph import joint
from minicaps.sums import selected
from minicaps.tensor import REGISTRY

SHAPES = st.lists(st.integers(1, 4), max_size=4).map(tuple)
OP_CASES = [case for case in CASES if case.op in REGISTRY]
PLAIN = (2, 3)  # the shape where one is enough


# --- Layouts: the same numbers, stored differently -----------------------------------------------


def stepped(a, step):
    room = np.zeros([abs(step) * n for n in a.shape])
    room = room[(*[slice(None, None, step)] * a.ndim, ...)]
    room[...] = a
    return room


LAYOUTS = {
    "dense": lambda a: a,
    "transposed": lambda a: np.array(a, order="F"),
    "strided": lambda a: stepped(a, 2),
    "flipped": lambda a: stepped(a, -1),
}


def with_broadcast_inputs(function, arrays):
    """Pass `function` views that repeat the first row and are created inside the graph."""
    shapes = [a.shape for a in arrays]
    rows = [a[:1] if a.ndim else a for a in arrays]

    def expanding(*tensors):
        pairs = zip(tensors, shapes, strict=True)
        return function(*[ops.expand(t, shape=shape) for t, shape in pairs])

    return expanding, rows


def with_flipped_cotangent(function):
    """Pass the pullback its cotangent as a view with negative strides."""

    def flipped_function(*tensors):
        y = function(*tensors)
        return y[(slice(None, None, -1),) * y.ndim].T

    return flipped_function


def build(case, shape=PLAIN, seed=0):
    return case.build(shape, np.random.default_rng(seed))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_for_some_shapes(case):
    for seed, shape in enumerate([(), (1,), (3, 1), (2, 1, 2, 2)]):
        function, arrays = build(case, shape, seed)
        check_gradients(function, *arrays)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
@settings(max_examples=10, deadline=None, derandomize=True, database=None)
@given(shape=SHAPES, seed=st.integers(0, 2**32 - 1))
def test_gradients_for_any_shape(case, shape, seed):
    function, arrays = build(case, shape, seed)
    check_gradients(function, *arrays)


@pytest.mark.slow
@pytest.mark.parametrize("layout", [*LAYOUTS, "broadcast"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_for_any_layout(case, layout):
    function, arrays = build(case, (3, 2, 2, 3))
    if layout != "broadcast":
        arrays = [LAYOUTS[layout](a) for a in arrays]
    elif case.repeats:
        function, arrays = with_broadcast_inputs(function, arrays)
    check_gradients(with_flipped_cotangent(function), *arrays)


# --- Does the table cover the registry, and would its checks notice? -----------------------------


# These import packages that are optional
OPTIONAL = ("minicaps.bench.twins", "minicaps.bench.onnx_peer", "minicaps.export.onnx_")


def test_every_op_has_a_case():
    for module in pkgutil.walk_packages(minicaps.__path__, "minicaps."):
        extra = module.name.startswith(OPTIONAL)
        if not extra and not module.name.endswith("__main__"):  # which is a command
            importlib.import_module(module.name)
    ours = {name for name, op in REGISTRY.items() if op.__module__.startswith("minicaps.")}
    without = ours - {case.op for case in CASES}
    assert not without, f"write gradient cases in gradient_cases.py for {sorted(without)}"


def test_every_function_of_ops_has_a_case():
    assert set(ops.__all__) <= {n for case in CASES for n in (case.name, case.op.lstrip("_"))}


@contextmanager
def watched_pullbacks(op, change=lambda position, gradient: gradient):
    """Collect the positions of the arguments that get gradients from `op`, and `change` these.

    Yields (positions that received a gradient, positions that have one).
    """
    pull, got, have = graph._pull, set(), set()

    def watched(node, g):
        pullback = node.pullback
        gradients = pull(node, g)
        if node.name == op:
            if isinstance(pullback, joint):
                pullback = (pullback,) * len(gradients)
            pulls = pullback if isinstance(pullback, tuple) else (pullback,)
            have.update(i for i, one in enumerate(pulls) if one)
            got.update(i for i, gradient in enumerate(gradients) if gradient is not None)
            gradients = [x if x is None else changed(i, x) for i, x in enumerate(gradients)]
        return gradients

    def changed(position, gradient):
        if isinstance(gradient, selected):
            return gradient._replace(values=change(position, gradient.values))
        return change(position, gradient)

    graph._pull = watched
    try:
        yield got, have
    finally:
        graph._pull = pull


@pytest.mark.parametrize("case", OP_CASES, ids=str)
def test_a_scaled_pullback_is_noticed(case):
    function, arrays = build(case)
    with watched_pullbacks(case.op) as (got, _):
        check_gradients(function, *arrays)
    assert got
    for argument in got:
        with (
            watched_pullbacks(case.op, lambda i, x, a=argument: 1.01 * x if i == a else x),
            pytest.raises(GradientError),
        ):
            check_gradients(function, *arrays)


@pytest.mark.parametrize("op", sorted({case.op for case in OP_CASES}))
def test_every_argument_with_a_gradient_is_checked(op):
    with watched_pullbacks(op) as (got, have):
        for case in OP_CASES:
            if case.op == op:
                differentiate(*build(case))
    assert got == have
