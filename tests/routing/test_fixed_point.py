"""Fixed points: solutions, implicit gradients, and the warnings if there is no solution."""

import tracemalloc
import warnings

import numpy as np
import pytest
from routing_checks import (
    EDGES,
    ROUTES,
    SOLVABLE,
    VOTES_IN_WINDOWS,
    WINDOWS,
    assert_same,
    differentiate,
    named,
)
from tensors import draw
from thinning import thinned

from minicaps import Tensor, no_grad, ops
from minicaps.gradcheck import check_gradients
from minicaps.routing import (
    agreement,
    agreement_plain,
    cosine_activation,
    distance,
    distance_plain,
    fixed_point,
    keep_history,
    self_consistent_pooling,
)

each_solvable = pytest.mark.parametrize("name", SOLVABLE)
each_gradient = pytest.mark.parametrize("gradient", ["unrolled", "implicit"])
must_converge = pytest.mark.filterwarnings("error")
NOT_FOUND = "iterations did not find a fixed point"


def implicit(name, iterations=300, **options):
    return named(name, gradient="implicit", iterations=iterations, **options)


# --- Any equation --------------------------------------------------------------------------------

MATRIX, SHIFT = 0.3 * draw(3, 3), draw(2, 3, seed=1)


def affine(v, matrix, shift):
    return ops.einsum("bi,ij->bj", v, matrix) + shift


@must_converge
def test_a_linear_equation_has_the_gradient_of_its_closed_form():
    """The solution of v = v A + b is b (1 − A)⁻¹."""
    inverse, g = np.linalg.inv(np.eye(3) - MATRIX), draw(2, 3, seed=2)
    matrix, shift = (Tensor(a, requires_grad=True) for a in (MATRIX, SHIFT))
    start = Tensor(np.zeros((2, 3)), requires_grad=True)
    v = fixed_point(affine, start, matrix, shift, iterations=200, gradient="implicit")
    v.backward(g)
    np.testing.assert_allclose(v.data, SHIFT @ inverse, rtol=1e-12)
    np.testing.assert_allclose(shift.grad, g @ inverse.T, rtol=1e-12)
    np.testing.assert_allclose(matrix.grad, v.data.T @ g @ inverse.T, rtol=1e-12)
    assert start.grad is None


@pytest.mark.parametrize("wanted", [(True, False), (False, True), (False, False)])
def test_only_wanted_gradients_are_given(wanted):
    parameters = [
        Tensor(a, requires_grad=want) for a, want in zip((MATRIX, SHIFT), wanted, strict=True)
    ]
    start = Tensor(np.zeros((2, 3)))
    v = fixed_point(affine, start, *parameters, iterations=200, gradient="implicit")
    assert v.requires_grad == any(wanted)
    if any(wanted):
        v.sum().backward()
    assert [p.grad is not None for p in parameters] == list(wanted)


def test_backward_works_inside_no_grad():
    shift = Tensor(SHIFT, requires_grad=True)
    start = Tensor(np.zeros((2, 3)))
    v = fixed_point(affine, start, Tensor(MATRIX), shift, iterations=200, gradient="implicit")
    with no_grad():
        v.backward(np.ones((2, 3)))
    expected = np.ones((2, 3)) @ np.linalg.inv(np.eye(3) - MATRIX).T
    np.testing.assert_allclose(shift.grad, expected, rtol=1e-12)


@each_gradient
@pytest.mark.filterwarnings("ignore:.*did not find")
def test_every_round_is_one_step(gradient):
    shift, state = Tensor(SHIFT, requires_grad=True), np.ones((2, 3))
    for n in (0, 1, 2, 3, 10):
        start, options = Tensor(np.ones((2, 3))), {"gradient": gradient, "iterations": n}
        v = fixed_point(affine, start, Tensor(MATRIX), shift, **options)
        state = np.ones((2, 3))
        for _ in range(n):
            state = state @ MATRIX + SHIFT
        np.testing.assert_allclose(v.data, state, rtol=1e-10)


@each_gradient
def test_no_round_leaves_the_start(gradient):
    x = Tensor(draw(3), requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = cosine_activation(x, iterations=0, gradient=gradient)
    np.testing.assert_array_equal(y.data, x.data)
    assert x.data.flags.writeable


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gradient": "stop"}, "unknown gradient 'stop': choose unrolled or implicit"),
        ({"iterations": -1}, "must be at least 0, not -1"),
    ],
)
def test_senseless_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        cosine_activation(Tensor(draw(3)), **options)


# --- Without convergence -------------------------------------------------------------------------


def test_a_warning_tells_the_residual():
    """Iterating y ← x − cos y from y = x = 2 gives y₁ = 2.42, y₂ = 2.75, y₃ = 2.92."""
    x = Tensor(np.array(2.0))
    with pytest.warns(RuntimeWarning, match="^2 iterations .* by 6e-02 of its size. Allow more"):
        y = cosine_activation(x, iterations=2, gradient="implicit")
    y1 = 2 - np.cos(2)
    assert y.item() == pytest.approx(2 - np.cos(y1))


@pytest.mark.filterwarnings("ignore:.*did not find a fixed point")
def test_a_gradient_that_is_not_solved_gives_a_warning_too():
    x = Tensor(np.array(2.0), requires_grad=True)
    y = cosine_activation(x, iterations=3, gradient="implicit")
    with pytest.warns(RuntimeWarning, match="^3 iterations did not find the gradient of a fixed"):
        y.backward()


def test_where_a_round_does_not_contract_there_is_a_warning():
    """At y = π/2, the solution for x = π/2, sin y = 1."""
    x = Tensor(np.array(np.pi / 2 + 1e-6))
    with pytest.warns(RuntimeWarning, match=NOT_FOUND):
        cosine_activation(x, iterations=100, gradient="implicit")


def test_a_round_that_overflows_keeps_the_last_numbers():
    x = Tensor(np.full((2, 1), 2.0), requires_grad=True)
    with np.errstate(over="ignore"), pytest.warns(RuntimeWarning, match=NOT_FOUND):
        y = fixed_point(lambda v, x: v * v * x, x, x, iterations=50, gradient="implicit")
    assert np.isfinite(y.data).all() and (y.data > 1e50).all()


def test_what_is_not_a_number_is_not_called_solved():
    x = Tensor(np.array([1.0, np.nan]))
    with pytest.warns(RuntimeWarning, match=NOT_FOUND):
        cosine_activation(x, iterations=50, gradient="implicit")


@pytest.mark.filterwarnings("error")
def test_unrolled_iterations_give_no_warning():
    cosine_activation(Tensor(np.array(2.0)), iterations=2)


# --- The activation y + cos y = x ----------------------------------------------------------------


@must_converge
@each_gradient
@pytest.mark.parametrize(("x", "slope"), [(0.5, 0.71262), (2.0, 1.18025), (1.0, 1.0)])
def test_the_activation_and_its_slope(x, slope, gradient):
    tensor = Tensor(np.array(x), requires_grad=True)
    y = cosine_activation(tensor, iterations=200, gradient=gradient)
    y.backward()
    assert y.item() + np.cos(y.item()) == pytest.approx(x, abs=1e-12)
    assert tensor.grad == pytest.approx(1 / (1 - np.sin(y.item())), rel=1e-10)
    assert tensor.grad == pytest.approx(slope, abs=1e-5)


@must_converge
@pytest.mark.parametrize("shape", [(), (4,), (2, 3), (2, 1, 3, 2), (0,), (2, 0)])
def test_the_activation_takes_any_shape(shape):
    x = np.random.default_rng(0).uniform(2, 3, shape)
    found = []
    for gradient in ("unrolled", "implicit"):
        tensor = Tensor(x, requires_grad=True)
        y = cosine_activation(tensor, iterations=200, gradient=gradient)
        y.backward(np.ones(shape))
        np.testing.assert_allclose(y.data + np.cos(y.data), x, rtol=1e-12)
        found.append(tensor.grad)
    np.testing.assert_allclose(*found, rtol=1e-10)


def test_few_rounds_are_differentiated_as_they_are():
    """Two iterations written out: y₂ = x − cos(x − cos x)."""
    x = Tensor(draw(5), requires_grad=True)
    y = cosine_activation(x, iterations=2)
    y.backward(np.ones(5))
    np.testing.assert_allclose(y.data, x.data - np.cos(x.data - np.cos(x.data)), rtol=1e-12)
    check_gradients(lambda x: cosine_activation(x, iterations=2), x.data)


# --- Self-consistent pooling ---------------------------------------------------------------------

VECTORS = draw(3, 6, 4)


@must_converge
@each_gradient
def test_pooling_solves_its_equation(gradient):
    m = self_consistent_pooling(Tensor(VECTORS), iterations=300, gradient=gradient).data
    for sample, answer in zip(VECTORS, m, strict=True):
        e = np.exp([answer @ x for x in sample])
        np.testing.assert_allclose(
            sum(w * x for w, x in zip(e, sample, strict=True)) / e.sum(), answer
        )


def test_pooling_starts_at_the_mean():
    history = [self_consistent_pooling(Tensor(VECTORS), iterations=n) for n in (0, 1)]
    np.testing.assert_allclose(history[0].data, VECTORS.mean(axis=1))
    attention = np.exp(np.einsum("bd,bid->bi", VECTORS.mean(axis=1), VECTORS))
    attention /= attention.sum(axis=1, keepdims=True)
    expected = np.einsum("bi,bid->bd", attention, VECTORS)
    np.testing.assert_allclose(history[1].data, expected, rtol=1e-12)


def test_pooling_answers_with_what_agrees_with_the_answer():
    """Three vectors point one way and one the other: the result follows the three, not the mean."""
    x = np.array([[[3.0, 0.1], [3.0, 0.0], [3.0, -0.1], [-3.0, 0.0]]])
    m = self_consistent_pooling(Tensor(x), iterations=50).data
    np.testing.assert_allclose(m, [[3, 0]], atol=1e-3)


@must_converge
def test_pooling_equal_vectors_gives_that_vector():
    x = np.broadcast_to(draw(2, 1, 3), (2, 5, 3))
    for gradient in ("unrolled", "implicit"):
        m = self_consistent_pooling(Tensor(x), gradient=gradient).data
        np.testing.assert_allclose(m, x[:, 0], rtol=1e-12)


@pytest.mark.slow
@must_converge
def test_the_gradients_of_pooling():
    x, found = 0.5 * VECTORS[:2, :4, :3], []
    for gradient in ("unrolled", "implicit"):
        tensor = Tensor(x, requires_grad=True)
        m = self_consistent_pooling(tensor, iterations=200, gradient=gradient)
        m.backward(draw(2, 3, seed=1))
        found.append(tensor.grad)
    np.testing.assert_allclose(*found, rtol=1e-8, atol=1e-12)
    options = {"iterations": 200, "gradient": "implicit"}
    check_gradients(lambda x: self_consistent_pooling(x, **options), x)
    check_gradients(lambda x: self_consistent_pooling(x, iterations=2), x)


# --- Routing at its fixed point ------------------------------------------------------------------

VOTES = 0.4 * draw(2, 5, 3, 4)


@must_converge
@pytest.mark.parametrize("windows", thinned([None, WINDOWS]), ids=["dense", "in windows"])
@each_solvable
def test_implicit_equals_unrolled_at_convergence(name, windows):
    votes = VOTES if windows is None else 0.3 * draw(*VOTES_IN_WINDOWS)
    for choice in ({}, {"inverse_temperature": 0.5, "squash": "half"}):
        options = {"iterations": 300, "windows": windows, **choice}
        found = differentiate(named(name, gradient="implicit", **options), votes)
        assert_same(found, differentiate(named(name, **options), votes), 1e-9)


@must_converge
@pytest.mark.parametrize("windows", thinned([None, WINDOWS]), ids=["dense", "in windows"])
@each_solvable
def test_implicit_gradients_are_those_of_central_differences_of_the_solution(name, windows):
    votes = VOTES[:, :3, :2, :2] if windows is None else 0.3 * draw(*VOTES_IN_WINDOWS)
    route = implicit(name, windows=windows, inverse_temperature=0.5)
    check_gradients(lambda votes: route(votes)[:2], votes)


@pytest.mark.parametrize("name", thinned(SOLVABLE, 2))
def test_implicit_is_not_what_few_iterations_give(name):
    _, [solved] = differentiate(implicit(name), VOTES)
    for options in ({"iterations": 2}, {"gradient": "stop", "iterations": 300}):
        _, [other] = differentiate(named(name, **options), VOTES)
        assert np.linalg.norm(solved - other) > 1e-3 * np.linalg.norm(solved)


@pytest.mark.parametrize("iterations", [2, 3, 5])
@each_solvable
def test_the_iterations_are_counted_as_without(name, iterations):
    """If the iterations do not suffice, the value is that of the same number without a limit."""
    with pytest.warns(RuntimeWarning, match=NOT_FOUND):
        found = implicit(name, iterations)(Tensor(VOTES))
    for x, y in zip(found, named(name, iterations=iterations)(Tensor(VOTES)), strict=True):
        np.testing.assert_allclose(x.data, y.data, rtol=1e-12)


@pytest.mark.filterwarnings("ignore:.*did not find")
@pytest.mark.parametrize("iterations", thinned([2, 5, 300], 2))
@each_solvable
def test_the_history_is_that_of_the_iterations(name, iterations):
    with keep_history():
        routed = implicit(name, iterations)(Tensor(VOTES, requires_grad=True))
        history, other = routed.history, named(name, iterations=iterations)(Tensor(VOTES)).history
    assert len(history) == iterations if iterations < 300 else 10 < len(history) < 300
    for found, expected in zip(history, other, strict=False):
        for x, y in zip(found, expected, strict=True):
            assert not x.requires_grad
            np.testing.assert_allclose(x.data, y.data, rtol=1e-10, atol=1e-12)
    for x, y in zip(routed, history[-1], strict=True):
        np.testing.assert_array_equal(x.data, y.data)


@must_converge
@pytest.mark.parametrize("name", thinned(SOLVABLE, 2))
def test_a_sample_is_solved_alone(name):
    """Samples that need few iterations are not affected by samples that need many."""
    votes = np.concatenate([VOTES[:1], 1.3 * VOTES[1:], 0.01 * VOTES])
    together, [gradient] = differentiate(implicit(name, 1000), votes)
    rounds = []
    for n in range(4):
        alone = Tensor(votes[n : n + 1], requires_grad=True)
        with keep_history():
            routed = implicit(name, 1000)(alone)
        rng = np.random.default_rng(9)
        cotangents = rng.normal(size=together.poses.shape), rng.normal(size=(4, 3))
        c, d = (x[n : n + 1] for x in cotangents)
        ((routed.poses * c).sum() + (routed.activations * d).sum()).backward()
        rounds.append(len(routed.history))
        for x, y in zip(together, routed, strict=True):
            np.testing.assert_array_equal(x.data[n], y.data[0])
        np.testing.assert_array_equal(gradient[n], alone.grad[0])
    assert max(rounds) > 2 * min(rounds)


@must_converge
def test_the_plain_routing_is_the_same():
    options = {"iterations": 300, "gradient": "implicit"}
    for update in ("recompute", "spherical"):
        a, b = (
            differentiate(route, VOTES, update=update, **options)
            for route in (agreement, agreement_plain)
        )
        assert_same(a, b, 0)
    a, b = (differentiate(route, VOTES, **options) for route in (distance, distance_plain))
    assert_same(a, b, 0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*did not find")
@each_solvable
def test_memory_does_not_grow_with_the_iterations(name):
    votes = 4 * draw(40, 60, 5, 8)
    size = votes.nbytes

    def peak(gradient, iterations):
        tensor = Tensor(votes, requires_grad=True)
        tracemalloc.start()
        try:
            routed = named(name, True, gradient=gradient, iterations=iterations)(tensor)
            kept = tracemalloc.get_traced_memory()[0]
            routed.poses.sum().backward()
            return kept, tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak("implicit", 3)
    few, many = peak("implicit", 3), peak("implicit", 25)
    assert max(abs(a - b) for a, b in zip(few, many, strict=True)) < 0.1 * size
    assert peak("unrolled", 25)[0] > peak("unrolled", 3)[0] + 2 * size


HUGE = {"votes of 1e4", "one outlier"}  # rounding errors keep changing their gradients


@must_converge
@pytest.mark.parametrize("dtype", thinned([np.float32, np.float64]))
@pytest.mark.parametrize("edge", sorted(EDGES.keys() - HUGE))
@each_solvable
def test_edges_give_numbers(name, edge, dtype):
    votes = EDGES[edge].astype(dtype)
    routed, [grad] = differentiate(implicit(name, 1000), votes)
    for array in (*(t.data for t in routed), grad):
        assert array.dtype == dtype and np.isfinite(array).all()
    np.testing.assert_allclose(routed.couplings.data.sum(axis=2), 1, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:.*did not find")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("iterations", thinned([2, 3, 50], (3,)))
@each_solvable
def test_what_is_not_solved_gives_numbers_too(name, iterations, dtype):
    for votes in (*(EDGES[edge] for edge in HUGE), 1e4 * EDGES["identical votes"], 5 * VOTES):
        routed, [grad] = differentiate(implicit(name, iterations), votes.astype(dtype))
        for array in (*(t.data for t in routed), grad):
            assert array.dtype == dtype and np.isfinite(array).all()


@pytest.mark.parametrize("name", thinned(SOLVABLE, 2))
def test_the_device_computes_the_same(strict_cupy, name):
    def differentiate_on(xp):
        votes = Tensor(xp.asarray(0.5 * VOTES), requires_grad=True)
        routed = implicit(name)(votes)
        (routed.poses.sum() + routed.activations.sum()).backward()
        return [*(t.data for t in routed), votes.grad]

    on_device = differentiate_on(strict_cupy)
    assert set(strict_cupy.host_syncs) == {"get"}  # to check for convergence
    for x, y in zip(on_device, differentiate_on(np), strict=True):
        assert isinstance(x, strict_cupy.ndarray)
        np.testing.assert_allclose(x.get(), y, rtol=1e-11, atol=1e-12)


def test_accumulate_has_no_fixed_point():
    assert set(ROUTES) - set(SOLVABLE) == {"accumulate", "leaky"}
    for name in ("accumulate", "leaky"):
        with pytest.raises(ValueError, match='"accumulate" has none: its logits grow in every'):
            implicit(name)(Tensor(VOTES))
