"""Layers that route a few samples at a time: the same results without all votes of the batch."""

import functools
import gc
import tracemalloc
import warnings
import weakref

import numpy as np
import pytest
from routing_checks import ROUTES, SOLVABLE, WINDOWS, assert_same, differentiate, named
from tensors import collector_off, draw
from thinning import thinned

from minicaps import Tensor, no_grad
from minicaps.gradcheck import check_gradients
from minicaps.graph import Node
from minicaps.nn import DenseCaps
from minicaps.routing import (
    agreement,
    agreement_plain,
    blocks,
    distance,
    em,
    em_plain,
    keep_history,
    make_votes,
    make_votes_plain,
    route_in_blocks,
)

CAPSULES, WEIGHT = draw(7, 5, 3), draw(5, 4, 3, 2, seed=1)
VOTES_OF_ONE = 5 * 4 * 2  # numbers
each_name = pytest.mark.parametrize("name", ROUTES)
each_keep = pytest.mark.parametrize("keep", [False, True], ids=["again", "kept"])


def at_once(u, weight, route=agreement):
    return route(make_votes(u, weight))


def in_blocks(u, weight, route=agreement, keep=False):
    layer = functools.partial(at_once, route=route)
    return route_in_blocks(layer, [u], [weight], weight.size // weight.shape[2], keep=keep)


@pytest.fixture
def block(monkeypatch):
    """Set the number of samples that are routed at a time, and the number of cores."""

    def choose(samples, cores=1):
        monkeypatch.setattr(blocks, "BLOCK", samples * VOTES_OF_ONE * 8)
        monkeypatch.setattr(blocks, "cores", lambda: cores)

    return choose


def test_a_vote_is_a_child_times_its_matrix():
    for function in (make_votes, make_votes_plain):
        votes = function(Tensor(CAPSULES), Tensor(WEIGHT)).data
        assert votes.shape == (7, 5, 4, 2)
        np.testing.assert_allclose(votes[6, 3, 2], WEIGHT[3, 2].T @ CAPSULES[6, 3], rtol=1e-12)


@pytest.mark.parametrize("children", [1, 3, 4, 100])
def test_votes_of_a_few_children_at_a_time_are_the_plain_ones(monkeypatch, children):
    monkeypatch.setattr(blocks, "CHILDREN", children)
    found, plain = (
        differentiate(lambda u, w, f=f: agreement(f(u, w)), CAPSULES, WEIGHT)
        for f in (make_votes, make_votes_plain)
    )
    assert_same(found, plain, 1e-12)


@each_keep
@pytest.mark.parametrize("cores", [1, 2, 3, 16])
@pytest.mark.parametrize("samples", [0, 1, 2, 3, 7, 100])
def test_blocks_change_nothing(block, samples, cores, keep):
    block(samples, cores)

    def route(votes):
        routed_samples.append(len(votes))
        return agreement(votes)

    routed_samples = []
    found = differentiate(in_blocks, CAPSULES, WEIGHT, route=route, keep=keep)
    assert max(routed_samples) == min(max(samples, 1), -(-7 // cores))
    assert sum(routed_samples) == (7 if keep else 2 * 7)  # the backward pass repeats the routing
    assert_same(found, differentiate(at_once, CAPSULES, WEIGHT, route=route), 1e-12)


@each_keep
@each_name
def test_any_routing_goes_through_blocks(block, name, keep):
    block(2, cores=2)
    for options in ({}, {"gradient": "stop"}):
        route = named(name, **options)
        found = differentiate(in_blocks, CAPSULES, WEIGHT, route=route, keep=keep)
        assert_same(found, differentiate(at_once, CAPSULES, WEIGHT, route=route), 1e-12)


@each_keep
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", thinned(SOLVABLE, 2))
def test_implicit_gradients_go_through_threads(block, name, keep):
    block(2, cores=2)
    arrays, options = (0.5 * CAPSULES, WEIGHT), {"iterations": 100, "inverse_temperature": 0.3}
    implicit = named(name, gradient="implicit", **options)
    found = differentiate(in_blocks, *arrays, route=implicit, keep=keep)
    assert_same(found, differentiate(at_once, *arrays, route=implicit), 1e-12)
    unrolled = differentiate(at_once, *arrays, route=named(name, **options))
    assert_same(found, unrolled, 1e-8)


def test_a_warning_of_a_thread_reaches_the_caller(block):
    block(2, cores=2)
    route = named("recompute", iterations=2, gradient="implicit")
    with pytest.warns(RuntimeWarning, match="did not find a fixed point"):
        in_blocks(Tensor(CAPSULES), Tensor(WEIGHT), route=route)


def test_an_error_of_a_thread_reaches_the_caller(block):
    block(2, cores=2)

    def route(votes):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        in_blocks(Tensor(CAPSULES), Tensor(WEIGHT), route=route)


@pytest.mark.parametrize("cores", [1, 2])
@each_name
def test_windows_of_a_sample_stay_together(block, name, cores):
    """Here, a sample has several rows of votes, which compete."""
    block(1, cores)
    u, weight = draw(3, *WINDOWS.size, WINDOWS.types, 3), draw(8, 4, 3, 2, seed=1)

    def layer(u, weight):
        return named(name, windows=WINDOWS)(make_votes(WINDOWS.gather(u), weight))

    def split(u, weight):
        return route_in_blocks(layer, [u], [weight], 6 * 8 * 4 * 2)

    found = differentiate(split, u, weight)
    assert found[0].poses.shape == (3 * 6, 4, 2)
    assert_same(found, differentiate(layer, u, weight), 1e-12)


def test_blocks_take_several_inputs_and_parameters(block):
    block(2, cores=2)
    arrays = CAPSULES, draw(7, 5, 1, seed=2), WEIGHT, draw(4, 2, seed=3)

    def layer(u, factor, weight, shift):
        return agreement(make_votes(u * factor, weight) + shift)

    def split(u, factor, weight, shift):
        return route_in_blocks(layer, [u, factor], [weight, shift], VOTES_OF_ONE)

    assert_same(differentiate(split, *arrays), differentiate(layer, *arrays), 1e-12)


def test_blocks_work_in_any_memory_layout(block):
    block(2)
    u = np.asfortranarray(CAPSULES)
    weight = WEIGHT.transpose(0, 2, 1, 3).copy().transpose(0, 2, 1, 3)
    assert_same(differentiate(in_blocks, u, weight), differentiate(at_once, u, weight), 1e-12)


def test_gradients_of_blocks_are_those_of_central_differences(block):
    block(1)
    check_gradients(lambda u, w: in_blocks(u, w)[:2], CAPSULES[:2], WEIGHT)


@each_keep
@pytest.mark.parametrize("wanted", [(True, False), (False, True)])
def test_only_wanted_gradients_are_given(block, wanted, keep):
    block(3)
    u, weight = (
        Tensor(a, requires_grad=w) for a, w in zip((CAPSULES, WEIGHT), wanted, strict=True)
    )
    in_blocks(u, weight, keep=keep).poses.sum().backward()
    assert (u.grad is not None, weight.grad is not None) == wanted


def test_the_second_routing_computes_only_wanted_gradients(block):
    block(3)
    asked = []

    def layer(u, weight):
        asked.append((u.requires_grad, weight.requires_grad))
        return at_once(u, weight)

    u, weight = Tensor(CAPSULES), Tensor(WEIGHT, requires_grad=True)
    route_in_blocks(layer, [u], [weight], VOTES_OF_ONE, keep=False).poses.sum().backward()
    assert set(asked) == {(False, False), (False, True)}


@each_keep
def test_without_gradients_nothing_is_recorded(keep):
    with no_grad():
        tensors = Tensor(CAPSULES, requires_grad=True), Tensor(WEIGHT, requires_grad=True)
        assert not in_blocks(*tensors, keep=keep).poses.requires_grad
        assert not at_once(*tensors).poses.requires_grad


@each_keep
@pytest.mark.parametrize("cores", [1, 2])
def test_backward_works_inside_no_grad(block, cores, keep):
    block(2, cores)
    inside, outside = (
        [Tensor(a, requires_grad=True) for a in (CAPSULES, WEIGHT)] for _ in range(2)
    )
    poses = in_blocks(*inside, keep=keep).poses
    with no_grad():
        poses.backward(np.ones(poses.shape))
    in_blocks(*outside, keep=keep).poses.backward(np.ones(poses.shape))
    for a, b in zip(inside, outside, strict=True):
        np.testing.assert_array_equal(a.grad, b.grad)


@each_keep
@each_name
def test_an_empty_batch_in_blocks(name, keep):
    empty = CAPSULES[:0]
    routed, [du, dw] = differentiate(in_blocks, empty, WEIGHT, route=named(name), keep=keep)
    parents = 5 if "leaky" in name else 4
    assert [t.shape for t in routed] == [(0, 4, 2), (0, 4), (0, 5, parents)]
    assert du.shape == (0, 5, 3) and dw.shape == WEIGHT.shape and not dw.any()


@each_keep
def test_float32_stays_float32_in_blocks(keep):
    arrays = [a.astype(np.float32) for a in (CAPSULES, WEIGHT)]
    routed, gradients = differentiate(in_blocks, *arrays, keep=keep)
    assert {a.dtype for a in (*routed, *gradients)} == {np.dtype(np.float32)}


def test_threads_see_the_settings_of_the_caller(block):
    block(1, cores=2)
    u, weight = Tensor(1e30 * CAPSULES.astype(np.float32)), Tensor(1e30 * WEIGHT.astype(np.float32))
    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        in_blocks(u, weight)
    with np.errstate(over="ignore", invalid="ignore"), warnings.catch_warnings():
        warnings.simplefilter("error")
        in_blocks(u, weight)


@pytest.mark.parametrize("fits", [False, True])
def test_what_fits_is_kept(block, monkeypatch, fits):
    block(3)
    monkeypatch.setattr(blocks, "KEEP", 7 * VOTES_OF_ONE * 8 - (not fits))
    routed_samples = []

    def route(votes):
        routed_samples.append(len(votes))
        return agreement(votes)

    differentiate(in_blocks, CAPSULES, WEIGHT, route=route, keep=None)
    assert sum(routed_samples) == (7 if fits else 2 * 7)


def test_the_votes_of_a_large_batch_never_exist_together(monkeypatch):
    u, weight = draw(200, 50, 4), draw(50, 10, 4, 8)
    whole = 200 * 50 * 10 * 8 * 8
    monkeypatch.setattr(blocks, "BLOCK", whole // 50)
    monkeypatch.setattr(blocks, "KEEP", whole - 1)
    tensors = [Tensor(a, requires_grad=True) for a in (u, weight)]
    tracemalloc.start()
    try:
        poses = in_blocks(*tensors, keep=None).poses
        kept = tracemalloc.get_traced_memory()[0]
        poses.backward(np.ones(poses.shape))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert kept < whole / 4
    assert peak < whole / 2


@pytest.mark.parametrize(
    "function",
    [
        at_once,
        functools.partial(at_once, route=agreement_plain),
        in_blocks,
        functools.partial(in_blocks, keep=True),
    ],
)
def test_the_backward_pass_frees_what_the_forward_pass_kept(function):
    u, weight = Tensor(CAPSULES.copy(), requires_grad=True), Tensor(WEIGHT, requires_grad=True)
    memory = weakref.ref(u.data)
    poses = function(u, weight).poses
    del u
    assert memory() is not None
    poses.backward(np.ones(poses.shape))
    assert memory() is None


@each_keep
def test_blocks_leave_no_work_for_the_cyclic_collector(block, keep):
    block(3)

    def work():
        differentiate(in_blocks, CAPSULES, WEIGHT, keep=keep)

    work()
    gc.set_debug(gc.DEBUG_SAVEALL)  # what it would free is moved to gc.garbage
    try:
        with collector_off():
            work()
            gc.collect()
            assert not [thing for thing in gc.garbage if isinstance(thing, Tensor | Node)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


@pytest.mark.parametrize(
    ("u", "weight"),
    [
        ((7, 5), (5, 4, 3, 2)),
        ((7, 5, 3), (5, 4, 3)),
        ((7, 6, 3), (5, 4, 3, 2)),
        ((7, 5, 2), (5, 4, 3, 2)),
    ],
)
@pytest.mark.parametrize("function", [at_once, in_blocks])
def test_capsules_and_weights_that_do_not_fit_are_refused(function, u, weight):
    with pytest.raises(ValueError, match=r"capsules \(B, I, N\) and weights .* not match: \(\d, "):
        function(Tensor(np.zeros(u)), Tensor(np.zeros(weight)))


@each_keep
@pytest.mark.parametrize("gradient", ["unrolled", "stop"])
@each_name
def test_the_device_computes_the_same(strict_cupy, block, name, gradient, keep):
    block(3, cores=2)
    route = named(name, gradient=gradient, inverse_temperature=1.5)

    def differentiate_on(xp):
        u, weight = (Tensor(xp.asarray(a), requires_grad=True) for a in (CAPSULES, WEIGHT))
        routed = in_blocks(u, weight, route=route, keep=keep)
        (routed.poses.sum() + routed.activations.sum()).backward()
        return [*(t.data for t in routed), u.grad, weight.grad]

    on_device = differentiate_on(strict_cupy)
    assert not strict_cupy.host_syncs
    for x, y in zip(on_device, differentiate_on(np), strict=True):
        assert isinstance(x, strict_cupy.ndarray)
        np.testing.assert_allclose(x.get(), y, rtol=1e-12, atol=1e-13)


def test_inputs_of_different_batches_are_refused():
    inputs = [Tensor(np.ones((2, 3))), Tensor(np.ones((4, 3)))]
    with pytest.raises(ValueError, match=r"batches of different sizes: \[2, 4\]"):
        route_in_blocks(lambda *_: pytest.fail("routed"), inputs, [], 1)


def test_a_history_goes_on_where_some_samples_need_more_iterations():
    layer = DenseCaps((6, 4), (3, 5), 0, routing="distance", gradient="implicit", iterations=60)
    layer.astype(np.float64)
    u = draw(2, 6, 4) * np.array([0.1, 2.0])[:, None, None]
    with keep_history():
        together = layer(Tensor(u))
        alone = [layer(Tensor(u[n : n + 1])) for n in range(2)]
    assert len(together.history) == max(len(one.history) for one in alone)
    for x, y in zip(together.history[-1], together, strict=True):
        np.testing.assert_allclose(x.data, y.data, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("route", [em, em_plain, distance, agreement])
def test_what_the_graph_holds_cannot_be_written_through_a_record(route):
    given = [Tensor(draw(2, 5, 3, 4))]
    if route in (em, em_plain):
        given += [Tensor(np.full((2, 5), 0.5)), Tensor(np.zeros(3)), Tensor(np.zeros(3))]
    with keep_history():
        routed = route(*given)
    records = [routed.couplings, routed.history[0].couplings, routed.history[-1].poses]
    for array in (record.data for record in records):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
