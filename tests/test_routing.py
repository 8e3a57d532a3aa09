"""Routing by agreement: fast equals plain, gradients are proved, and the edges give numbers."""

import gc
import itertools
import tracemalloc
import weakref

import numpy as np
import pytest

from minicaps import Tensor, no_grad
from minicaps.gradcheck import check_gradients
from minicaps.ops.capsule import SQUASHES
from minicaps.routing import agreement, agreement_plain, blocks, route_in_blocks
from minicaps.routing.agreement import GRADIENTS, UPDATES
from minicaps.routing.blocks import make_votes

ITERATIONS = (1, 2, 3, 5)
KINDS = (*SQUASHES, "none")

each_iterations = pytest.mark.parametrize("iterations", ITERATIONS)
each_update = pytest.mark.parametrize("update", UPDATES)
each_gradient = pytest.mark.parametrize("gradient", GRADIENTS)
each_routing = pytest.mark.parametrize("route", [agreement, agreement_plain])


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def differentiate(function, *arrays, **options):
    """Route arrays by `function`; return the Routed and the gradients of a random loss.

    Poses and activations both get a cotangent, as they do from margin loss and reconstruction.
    """
    tensors = [Tensor(a, requires_grad=True) for a in arrays]
    routed = function(*tensors, **options)
    rng = np.random.default_rng(9)
    c = rng.normal(size=routed.poses.shape).astype(routed.poses.dtype)
    d = rng.normal(size=routed.activations.shape).astype(routed.poses.dtype)
    ((routed.poses * c).sum() + (routed.activations * d).sum()).backward()
    return routed, [t.grad for t in tensors]


def assert_same(a, b, tolerance=1e-10):
    """Assert that two answers of `differentiate` are equal in everything."""
    (routed_a, gradients_a), (routed_b, gradients_b) = a, b
    for x, y in zip(routed_a, routed_b, strict=True):
        np.testing.assert_allclose(x.data, y.data, rtol=tolerance, atol=tolerance)
    for x, y in zip(gradients_a, gradients_b, strict=True):
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance * (1 + abs(y).max()))


# --- What agreement routing is -------------------------------------------------------------------


def softmax(b):
    e = np.exp(b - b.max())
    return e / e.sum()


def route_one_by_one(votes, iterations, update, beta):
    """Route one sample (I, J, D) with loops over children and parents; returns v and c."""
    children, parents, _ = votes.shape
    b = np.zeros((children, parents))
    for t in range(iterations):
        c = np.array([softmax(beta * b[i]) for i in range(children)])
        s = [sum(c[i, j] * votes[i, j] for i in range(children)) for j in range(parents)]
        v = [x * np.linalg.norm(x) / (1 + x @ x) for x in s]
        if t == iterations - 1:
            return np.array(v), c
        for i, j in itertools.product(range(children), range(parents)):
            if update == "accumulate":
                b[i, j] += votes[i, j] @ v[j]
            elif update == "recompute":
                b[i, j] = votes[i, j] @ v[j]
            else:
                b[i, j] = votes[i, j] @ s[j] / np.linalg.norm(s[j])


@each_routing
@each_update
@each_iterations
def test_it_is_the_procedure_of_the_paper(route, update, iterations):
    votes = draw(2, 5, 3, 4)
    options = {"iterations": iterations, "update": update, "inverse_temperature": 1.5}
    routed = route(Tensor(votes), **options)
    for n in range(2):
        v, c = route_one_by_one(votes[n], iterations, update, 1.5)
        np.testing.assert_allclose(routed.poses.data[n], v, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(routed.couplings.data[n], c, rtol=1e-12)
        np.testing.assert_allclose(routed.activations.data[n], np.linalg.norm(v, axis=1))


@each_routing
@pytest.mark.parametrize(("iterations", "a", "b"), [(1, 0.692308, 0.2), (3, 0.851195, 0.053979)])
def test_three_inputs_and_two_parents_by_hand(route, iterations, a, b):
    to_a = [(1, 0), (1, 0), (1, 0)]
    to_b = [(1, 0), (0, 1), (-1, 0)]
    votes = np.stack([to_a, to_b], axis=1)[None].astype(float)
    poses = route(Tensor(votes), iterations=iterations).poses.data[0]
    np.testing.assert_allclose(poses, [(a, 0), (0, b)], atol=1e-6)
    if iterations == 3:  # what a softmax over the children would give
        assert abs(poses - [(0.5, 0), (0, 0.127390)]).max() > 0.05


def test_every_child_divides_itself_among_the_parents():
    couplings = agreement(Tensor(draw(2, 5, 3, 4)), iterations=3).couplings.data
    assert couplings.shape == (2, 5, 3)
    np.testing.assert_allclose(couplings.sum(axis=2), 1, rtol=1e-12)
    assert abs(couplings.sum(axis=1) - 1).max() > 0.1


def test_the_first_couplings_are_equal():
    couplings = agreement(Tensor(draw(2, 5, 3, 4)), iterations=1).couplings.data
    np.testing.assert_allclose(couplings, 1 / 3, rtol=1e-12)


@each_update
def test_the_order_of_the_children_does_not_matter(update):
    votes, order = draw(2, 6, 3, 4), [3, 0, 5, 1, 4, 2]
    a = agreement(Tensor(votes), update=update)
    b = agreement(Tensor(votes[:, order]), update=update)
    np.testing.assert_allclose(a.poses.data, b.poses.data, rtol=1e-12)
    np.testing.assert_allclose(a.couplings.data[:, order], b.couplings.data, rtol=1e-12)


@each_update
def test_a_sample_is_routed_alone(update):
    votes = draw(5, 6, 3, 4)
    together = agreement(Tensor(votes), update=update)
    for n in range(5):
        alone = agreement(Tensor(votes[n : n + 1]), update=update)
        for x, y in zip(together, alone, strict=True):
            np.testing.assert_allclose(x.data[n], y.data[0], rtol=1e-12)


def test_more_iterations_of_accumulate_divide_more_sharply():
    votes = Tensor(draw(2, 5, 3, 4))
    largest = [
        agreement(votes, iterations=r).couplings.data.max(axis=2).mean() for r in (1, 3, 10, 300)
    ]
    assert largest == sorted(largest) and largest[-1] > 0.99


@pytest.mark.parametrize("update", ["recompute", "spherical"])
def test_more_iterations_of_the_others_solve_an_equation(update):
    votes = 0.5 * draw(2, 5, 3, 4)
    routed = agreement(Tensor(votes), iterations=300, update=update)
    v = routed.poses.data
    if update == "spherical":
        v = v / np.linalg.norm(v, axis=2, keepdims=True)
    b = np.einsum("bijd,bjd->bij", votes, v)
    c = np.exp(b) / np.exp(b).sum(axis=2, keepdims=True)
    np.testing.assert_allclose(routed.couplings.data, c, rtol=1e-10)


def test_a_larger_inverse_temperature_divides_more_sharply():
    votes = Tensor(draw(2, 5, 3, 4))
    largest = [
        agreement(votes, inverse_temperature=beta).couplings.data.max() for beta in (0.1, 1, 10)
    ]
    assert largest == sorted(largest) and largest[0] < 0.5 < largest[2]


# --- Fast equals plain ---------------------------------------------------------------------------


@each_gradient
@each_update
@each_iterations
def test_fast_equals_plain(iterations, update, gradient):
    votes = draw(2, 5, 3, 4)
    for kind, beta in itertools.product(KINDS, (0.5, 1.0, 2.5)):
        options = {
            "iterations": iterations,
            "update": update,
            "gradient": gradient,
            "inverse_temperature": beta,
            "squash": kind,
        }
        fast = differentiate(agreement, votes, **options)
        assert_same(fast, differentiate(agreement_plain, votes, **options))


@each_routing
def test_both_have_the_same_defaults(route):
    votes = draw(2, 5, 3, 4)
    named = {"iterations": 3, "update": "accumulate", "gradient": "unrolled"}
    named |= {"inverse_temperature": 1.0, "squash": "paper"}
    assert_same(differentiate(route, votes), differentiate(route, votes, **named), 0)


# --- Gradients -----------------------------------------------------------------------------------


@each_update
@each_iterations
def test_the_unrolled_gradient_is_that_of_central_differences(iterations, update):
    def route(votes):
        options = {"iterations": iterations, "update": update, "inverse_temperature": 1.5}
        return agreement(votes, **options)[:2]

    check_gradients(route, draw(2, 4, 3, 2))


@pytest.mark.parametrize("kind", KINDS)
def test_the_unrolled_gradient_holds_for_every_squash(kind):
    check_gradients(lambda votes: agreement(votes, squash=kind)[:2], draw(2, 4, 3, 2))


@each_routing
@each_update
@each_iterations
def test_stop_takes_the_couplings_as_constants(route, update, iterations):
    votes, cotangent = draw(2, 3, 2, 2), draw(2, 2, 2, seed=1)
    tensor = Tensor(votes, requires_grad=True)
    routed = route(tensor, iterations=iterations, update=update, gradient="stop")
    routed.poses.backward(cotangent)
    c = routed.couplings.data.copy()

    def last_sum(votes):
        s = np.einsum("bij,bijd->bjd", c, votes)
        n = np.linalg.norm(s, axis=2, keepdims=True)
        return (n / (1 + n * n) * s * cotangent).sum()

    for index in np.ndindex(votes.shape):
        step = np.zeros_like(votes)
        step[index] = 1e-5
        slope = (last_sum(votes + step) - last_sum(votes - step)) / 2e-5
        assert tensor.grad[index] == pytest.approx(slope, rel=1e-6, abs=1e-8)


@each_update
def test_stop_and_unrolled_differ(update):
    votes = 2 * draw(2, 5, 3, 4)
    _, [unrolled] = differentiate(agreement, votes, update=update)
    _, [stop] = differentiate(agreement, votes, update=update, gradient="stop")
    assert np.linalg.norm(unrolled - stop) > 0.2 * np.linalg.norm(unrolled)


def test_after_one_iteration_there_is_nothing_to_stop():
    votes = draw(2, 5, 3, 4)
    a, b = (differentiate(agreement, votes, iterations=1, gradient=g) for g in GRADIENTS)
    assert_same(a, b, 0)


def test_couplings_carry_no_gradient():
    assert not agreement(Tensor(draw(1, 2, 2, 2), requires_grad=True)).couplings.requires_grad


# --- Edges ---------------------------------------------------------------------------------------

EDGES = {
    "one child": draw(2, 1, 3, 4),
    "one parent": draw(2, 5, 1, 4),
    "one number": draw(2, 5, 3, 1),
    "zero votes": np.zeros((2, 5, 3, 4)),
    "identical votes": np.broadcast_to(draw(4), (2, 5, 3, 4)),
    "votes of 1e4": 1e4 * draw(2, 5, 3, 4),
    "votes of 1e-8": 1e-8 * draw(2, 5, 3, 4),
    "votes of 1e19": 1e19 * draw(2, 5, 3, 4),
    "votes of 1e-30": 1e-30 * draw(2, 5, 3, 4),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("edge", EDGES)
def test_edges_give_numbers(edge, dtype):
    votes = EDGES[edge].astype(dtype)
    for update, gradient, kind in itertools.product(UPDATES, GRADIENTS, SQUASHES):
        options = {"update": update, "gradient": gradient, "squash": kind}
        with np.errstate(divide="raise", over="raise", invalid="raise"):
            routed, [grad] = differentiate(agreement, votes, **options)
        for array in (*(t.data for t in routed), grad):
            assert array.dtype == dtype and np.isfinite(array).all()
        np.testing.assert_allclose(routed.couplings.data.sum(axis=2), 1, rtol=1e-5)
        assert (routed.activations.data <= 1 + 1e-6).all()


@each_update
def test_one_parent_gets_everything(update):
    routed = agreement(Tensor(draw(2, 5, 1, 4)), update=update)
    assert (routed.couplings.data == 1).all()


@each_update
def test_identical_votes_are_divided_equally(update):
    routed = agreement(Tensor(EDGES["identical votes"]), update=update)
    np.testing.assert_allclose(routed.couplings.data, 1 / 3, rtol=1e-12)


@each_routing
def test_zero_votes_give_the_zero_vector_and_no_gradient(route):
    routed, [grad] = differentiate(route, np.zeros((2, 5, 3, 4)))
    assert not routed.poses.data.any() and not routed.activations.data.any() and not grad.any()


@pytest.mark.parametrize("beta", [2, 2.0, np.float64(2)])
@each_routing
def test_float32_stays_float32(route, beta):
    votes = draw(2, 5, 3, 4).astype(np.float32)
    routed, [grad] = differentiate(route, votes, inverse_temperature=beta)
    assert {t.dtype for t in routed} | {grad.dtype} == {np.dtype(np.float32)}


@each_routing
@each_gradient
def test_an_empty_batch_is_routed_to_an_empty_batch(route, gradient):
    routed, [grad] = differentiate(route, np.zeros((0, 5, 3, 4)), gradient=gradient)
    shapes = (0, 3, 4), (0, 3), (0, 5, 3), (0, 5, 3, 4)
    assert (*(t.shape for t in routed), grad.shape) == shapes


@pytest.mark.parametrize(
    "layout",
    [
        lambda x: x.transpose(0, 2, 1, 3).copy().transpose(0, 2, 1, 3),
        lambda x: np.asfortranarray(x),
        lambda x: np.repeat(x, 2, axis=3)[..., ::2],
        lambda x: x[::-1].copy()[::-1],
    ],
)
def test_the_memory_layout_of_the_votes_does_not_matter(layout):
    votes = draw(2, 5, 3, 4)
    other = layout(votes)
    assert not other.flags.c_contiguous
    assert_same(differentiate(agreement, votes), differentiate(agreement, other), 1e-13)


# --- Errors --------------------------------------------------------------------------------------


@each_routing
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"iterations": 0}, "at least 1 iteration, not 0"),
        ({"iterations": -1}, "at least 1 iteration, not -1"),
        ({"update": "average"}, "unknown update 'average': choose accumulate, recompute, spher"),
        ({"gradient": "full"}, "unknown gradient 'full': choose unrolled, stop"),
        ({"squash": "cube"}, "unknown squash 'cube': choose paper, half"),
        ({"inverse_temperature": 0}, "positive and finite, not 0"),
        ({"inverse_temperature": -1.0}, "positive and finite, not -1.0"),
        ({"inverse_temperature": np.inf}, "positive and finite, not inf"),
        ({"inverse_temperature": np.nan}, "positive and finite, not nan"),
    ],
)
def test_senseless_options_are_refused(route, options, message):
    with pytest.raises(ValueError, match=message):
        route(Tensor(draw(2, 5, 3, 4)), **options)


@each_routing
def test_an_unknown_option_is_refused(route):
    with pytest.raises(TypeError, match="temperature"):
        route(Tensor(draw(2, 5, 3, 4)), temperature=1)


@each_routing
@pytest.mark.parametrize("shape", [(5, 3, 4), (1, 2, 5, 3, 4), (2, 0, 3, 4), (2, 5, 0, 4)])
def test_what_is_no_votes_is_refused(route, shape):
    with pytest.raises(ValueError, match=r"votes must have shape \(B, I, J, D\) .* not \("):
        route(Tensor(np.zeros(shape)))


# --- A few samples at a time ---------------------------------------------------------------------

CAPSULES, WEIGHT = draw(7, 5, 3), draw(5, 4, 3, 2, seed=1)
VOTES_OF_ONE = 5 * 4 * 2 * 8  # bytes


def route_at_once(u, weight, route):
    return route(make_votes(u, weight))


def test_a_vote_is_a_child_times_its_matrix():
    votes = make_votes(Tensor(CAPSULES), Tensor(WEIGHT)).data
    assert votes.shape == (7, 5, 4, 2)
    np.testing.assert_allclose(votes[6, 3, 2], WEIGHT[3, 2].T @ CAPSULES[6, 3], rtol=1e-12)


@pytest.mark.parametrize("samples", [0, 1, 2, 3, 7, 100])
@each_gradient
def test_blocks_change_nothing(monkeypatch, samples, gradient):
    monkeypatch.setattr(blocks, "BLOCK", samples * VOTES_OF_ONE)

    def route(votes):
        routed_samples.append(len(votes))
        return agreement(votes, gradient=gradient)

    routed_samples = []
    in_blocks = differentiate(route_in_blocks, CAPSULES, WEIGHT, route=route)
    assert max(routed_samples) == min(max(samples, 1), 7)
    assert sum(routed_samples) == 2 * 7  # the backward pass routes them again
    at_once = differentiate(route_at_once, CAPSULES, WEIGHT, route=route)
    assert_same(in_blocks, at_once, 1e-12)


def test_blocks_work_in_any_memory_layout(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK", 2 * VOTES_OF_ONE)
    u = np.asfortranarray(CAPSULES)
    weight = WEIGHT.transpose(0, 2, 1, 3).copy().transpose(0, 2, 1, 3)
    in_blocks = differentiate(route_in_blocks, u, weight, route=agreement)
    assert_same(in_blocks, differentiate(route_at_once, u, weight, route=agreement), 1e-12)


def test_gradients_of_blocks_are_those_of_central_differences(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK", VOTES_OF_ONE)
    check_gradients(lambda u, w: route_in_blocks(u, w, agreement)[:2], CAPSULES[:2], WEIGHT)


@pytest.mark.parametrize("wanted", [(True, False), (False, True)])
def test_only_wanted_gradients_are_computed(monkeypatch, wanted):
    monkeypatch.setattr(blocks, "BLOCK", 3 * VOTES_OF_ONE)
    asked = []

    def seen(u, weight):
        asked.append((u.requires_grad, weight.requires_grad))
        return make_votes(u, weight)

    monkeypatch.setattr(blocks, "make_votes", seen)
    u, weight = (
        Tensor(a, requires_grad=w) for a, w in zip((CAPSULES, WEIGHT), wanted, strict=True)
    )
    route_in_blocks(u, weight, agreement).poses.sum().backward()
    assert set(asked) == {(False, False), wanted}
    assert (u.grad is not None, weight.grad is not None) == wanted


def test_without_gradients_nothing_is_recorded():
    with no_grad():
        tensors = Tensor(CAPSULES, requires_grad=True), Tensor(WEIGHT, requires_grad=True)
        assert not route_in_blocks(*tensors, agreement).poses.requires_grad
        assert not agreement(make_votes(*tensors)).poses.requires_grad


def test_backward_works_inside_no_grad():
    inside, outside = (
        [Tensor(a, requires_grad=True) for a in (CAPSULES, WEIGHT)] for _ in range(2)
    )
    poses = route_in_blocks(*inside, agreement).poses
    with no_grad():
        poses.backward(np.ones(poses.shape))
    route_in_blocks(*outside, agreement).poses.backward(np.ones(poses.shape))
    for a, b in zip(inside, outside, strict=True):
        np.testing.assert_array_equal(a.grad, b.grad)


def test_an_empty_batch_in_blocks():
    routed, [du, dw] = differentiate(route_in_blocks, CAPSULES[:0], WEIGHT, route=agreement)
    assert [t.shape for t in routed] == [(0, 4, 2), (0, 4), (0, 5, 4)]
    assert du.shape == (0, 5, 3) and dw.shape == WEIGHT.shape and not dw.any()


def test_float32_stays_float32_in_blocks():
    arrays = [a.astype(np.float32) for a in (CAPSULES, WEIGHT)]
    routed, gradients = differentiate(route_in_blocks, *arrays, route=agreement)
    assert {a.dtype for a in (*routed, *gradients)} == {np.dtype(np.float32)}


def test_the_votes_of_the_whole_batch_never_exist(monkeypatch):
    u, weight = draw(200, 50, 4), draw(50, 10, 4, 8)
    whole = 200 * 50 * 10 * 8 * 8
    monkeypatch.setattr(blocks, "BLOCK", whole // 50)
    tensors = [Tensor(a, requires_grad=True) for a in (u, weight)]
    tracemalloc.start()
    try:
        poses = route_in_blocks(*tensors, agreement).poses
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
        lambda u, weight: agreement(make_votes(u, weight)),
        lambda u, weight: agreement_plain(make_votes(u, weight)),
        lambda u, weight: route_in_blocks(u, weight, agreement),
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


def test_routing_leaves_no_work_for_the_cyclic_collector():
    def work():
        differentiate(agreement, EDGES["one child"])
        differentiate(agreement_plain, EDGES["one child"])
        differentiate(route_in_blocks, CAPSULES, WEIGHT, route=agreement)

    work()
    gc.collect()
    gc.disable()
    try:
        work()
        assert gc.collect() == 0
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("u", "weight"),
    [
        ((7, 5), (5, 4, 3, 2)),
        ((7, 5, 3), (5, 4, 3)),
        ((7, 6, 3), (5, 4, 3, 2)),
        ((7, 5, 2), (5, 4, 3, 2)),
    ],
)
@pytest.mark.parametrize("route", [route_at_once, route_in_blocks])
def test_capsules_and_weights_that_do_not_fit_are_refused(route, u, weight):
    with pytest.raises(ValueError, match=r"capsules \(B, I, N\) and weights .* do not fit: \(7, "):
        route(Tensor(np.zeros(u)), Tensor(np.zeros(weight)), agreement)


# --- On the device -------------------------------------------------------------------------------


@each_gradient
@each_update
@pytest.mark.parametrize("route", [agreement, agreement_plain])
def test_the_device_computes_the_same(strict_cupy, monkeypatch, route, update, gradient):
    monkeypatch.setattr(blocks, "BLOCK", 3 * VOTES_OF_ONE)
    options = {"update": update, "gradient": gradient, "inverse_temperature": 1.5}
    xp = strict_cupy

    def differentiate_on(xp):
        u, weight = (Tensor(xp.asarray(a), requires_grad=True) for a in (CAPSULES, WEIGHT))
        routed = route_in_blocks(u, weight, lambda votes: route(votes, **options))
        (routed.poses.sum() + routed.activations.sum()).backward()
        return [*(t.data for t in routed), u.grad, weight.grad]

    on_device = differentiate_on(xp)
    assert not xp.host_syncs
    for x, y in zip(on_device, differentiate_on(np), strict=True):
        assert isinstance(x, xp.ndarray)
        np.testing.assert_allclose(x.get(), y, rtol=1e-12, atol=1e-13)
