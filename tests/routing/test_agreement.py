"""Routings of vectors: the results of agreement, and the guarantees of all routings."""

import gc
import itertools

import numpy as np
import pytest
from routing_checks import (
    EDGES,
    ROUTES,
    SOLVABLE,
    VOTES_IN_WINDOWS,
    WINDOWS,
    assert_same,
    child_of,
    couple_one_by_one,
    differentiate,
    named,
    squashed,
)
from tensors import collector_off, draw
from thinning import thinned, thinned_rows

from minicaps import Tensor, no_grad
from minicaps.gradcheck import check_gradients
from minicaps.ops.capsule import SQUASHES
from minicaps.routing import (
    ROUTINGS,
    UPDATES,
    agreement,
    agreement_plain,
    keep_history,
    make_votes,
)

KINDS = (*SQUASHES, "none")
# Iterations of a routing, 1 only with the default update
ROUNDS = [(r, n) for r in (1, 2, 3, 5) for n in ROUTES if r > 1 or "update" not in ROUTES[n][2]]

each_name = pytest.mark.parametrize("name", ROUTES)
each_update = pytest.mark.parametrize("update", UPDATES)
each_round = pytest.mark.parametrize(
    ("iterations", "name"), thinned_rows(ROUNDS, [pair for pair in ROUNDS if pair[0] in (1, 3)])
)
each_routing = pytest.mark.parametrize("route", [agreement, agreement_plain])
both = pytest.mark.parametrize("plain", [False, True], ids=["fast", "plain"])


def route(name, votes, **options):
    """Route an array of votes with the routing of `named`."""
    return named(name, **options)(Tensor(votes))


# --- The definition of agreement routing ---------------------------------------------------------


def route_one_by_one(votes, iterations, update, beta, orphans=False, windows=None):
    """Route votes (rows, I, J, D) with loops over children and parents; returns v and c."""
    b = np.zeros(votes.shape[:3])
    for t in range(iterations):
        c = couple_one_by_one(beta * b, orphans, windows)
        s = np.zeros((votes.shape[0], *votes.shape[2:]))
        for n, i, j in np.ndindex(c.shape):
            s[n, j] += c[n, i, j] * votes[n, i, j]
        if t == iterations - 1:
            v = [[squashed(x) for x in row] for row in s]
            return np.array(v), c
        for n, i, j in np.ndindex(c.shape):
            if update == "spherical":
                b[n, i, j] = votes[n, i, j] @ s[n, j] / np.linalg.norm(s[n, j])
            else:
                before = b[n, i, j] if update == "accumulate" else 0
                b[n, i, j] = before + votes[n, i, j] @ squashed(s[n, j])


@both
@pytest.mark.parametrize("windows", [None, WINDOWS], ids=["dense", "in windows"])
@pytest.mark.parametrize("orphans", [False, True], ids=["", "leaky"])
@each_update
@pytest.mark.parametrize("iterations", [1, 2, 3, 5])
def test_it_is_the_procedure_of_the_paper(plain, update, iterations, orphans, windows):
    votes = draw(*VOTES_IN_WINDOWS)
    options = {"iterations": iterations, "orphans": orphans, "windows": windows}
    expected = route_one_by_one(votes, update=update, beta=1.5, **options)
    if iterations > 1:
        options |= {"update": update, "inverse_temperature": 1.5}
    routed = (agreement_plain if plain else agreement)(Tensor(votes), **options)
    np.testing.assert_allclose(routed.poses.data, expected[0], rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(routed.couplings.data[..., :2], expected[1], rtol=1e-11)
    lengths = np.linalg.norm(expected[0], axis=2)
    np.testing.assert_allclose(routed.activations.data, lengths, rtol=1e-11)


@each_routing
@pytest.mark.parametrize(("iterations", "a", "b"), [(1, 0.692308, 0.2), (3, 0.851195, 0.053979)])
def test_three_inputs_and_two_parents_by_hand(route, iterations, a, b):
    to_a = [(1, 0), (1, 0), (1, 0)]
    to_b = [(1, 0), (0, 1), (-1, 0)]
    votes = np.stack([to_a, to_b], axis=1)[None].astype(float)
    poses = route(Tensor(votes), iterations=iterations).poses.data[0]
    np.testing.assert_allclose(poses, [(a, 0), (0, b)], atol=1e-6)
    if iterations == 3:  # the result of a softmax over the children
        assert abs(poses - [(0.5, 0), (0, 0.127390)]).max() > 0.05


def test_the_names_of_the_routings():
    votes = draw(2, 5, 3, 4)
    for name, route in ROUTINGS.items():
        expected = named({"agreement": "accumulate"}.get(name, name))
        assert_same(differentiate(route, votes), differentiate(expected, votes), 0)
    assert list(ROUTINGS) == ["agreement", "leaky", "distance"]


def test_leaky_routing_takes_orphans_away():
    """A child that agrees with no parent goes to the orphans; children that agree stay."""
    votes = np.ones((1, 6, 2, 3))
    votes[0, 5] = -2
    couplings = route("leaky", votes, iterations=5).couplings.data[0]
    assert couplings.shape == (6, 3)
    assert couplings[5, 2] > 0.9 and (couplings[:5, 2] < 0.1).all()
    assert (route("accumulate", votes, iterations=5).couplings.data[0, 5] == 0.5).all()


def test_a_larger_inverse_temperature_divides_more_sharply():
    for name in ("accumulate", "recompute", "spherical", "distance"):
        votes = draw(2, 5, 3, 4)
        largest = [
            route(name, votes, inverse_temperature=beta).couplings.data.max()
            for beta in (0.1, 1, 10)
        ]
        assert largest == sorted(largest) and largest[0] < 0.6 < largest[2]


# --- Many iterations -----------------------------------------------------------------------------


def sharpness(name, iterations):
    """Return the average share of a child that its largest parent receives."""
    return route(name, draw(2, 5, 3, 4), iterations=iterations).couplings.data.max(axis=2).mean()


def test_accumulate_tends_to_one_parent_for_each_child():
    found = [sharpness("accumulate", r) for r in (1, 3, 10, 30, 300)]
    assert found == sorted(found)
    assert found[-1] > 0.99


@pytest.mark.parametrize("name", ["recompute", "spherical", "distance"])
def test_the_others_settle(name):
    found = [sharpness(name, r) for r in (1 if name == "distance" else 2, 50, 100, 300)]
    assert found[1] == pytest.approx(found[3], rel=1e-3)
    assert found[2] == pytest.approx(found[3], rel=1e-6)
    assert found[3] < 0.9


@pytest.mark.parametrize("name", SOLVABLE)
def test_the_residual_falls_to_rounding(name):
    with keep_history():
        history = route(name, 0.7 * draw(2, 6, 3, 4), iterations=200).history
    v = np.array([routed.poses.data for routed in history])
    residual = abs(v[1:] - v[:-1]).max(axis=(1, 2, 3))
    assert residual[0] > 1e-3 and residual[20] < 0.1 * residual[2] and residual[-1] < 1e-15


@pytest.mark.parametrize("name", SOLVABLE)
def test_it_is_an_equation_that_they_solve(name):
    votes = 0.7 * draw(2, 6, 3, 4)
    couplings = route(name, votes, iterations=300).couplings.data[..., :3]
    s = np.einsum("bij,bijd->bjd", couplings, votes)
    if name == "distance":
        s /= couplings.sum(axis=1)[..., None]
        b = -((votes - s[:, None]) ** 2).sum(axis=3)
    else:
        n = np.linalg.norm(s, axis=2, keepdims=True)
        v = s / n if "spherical" in name else n * s / (1 + n * n)
        b = np.einsum("bijd,bjd->bij", votes, v)
    expected = couple_one_by_one(b, orphans="leaky" in name)
    np.testing.assert_allclose(couplings, expected, rtol=1e-11)


# --- Guarantees of all routings ------------------------------------------------------------------


@both
@each_round
def test_couplings_sum_to_one_over_parents(name, iterations, plain):
    options = {"plain": plain, "iterations": iterations}
    couplings = route(name, draw(2, 5, 3, 4), **options).couplings.data
    assert couplings.shape == (2, 5, 4 if "leaky" in name else 3)
    np.testing.assert_allclose(couplings.sum(axis=2), 1, rtol=1e-12)
    if iterations == 1:
        np.testing.assert_allclose(couplings, 1 / couplings.shape[2], rtol=1e-12)
    else:
        assert abs(couplings.sum(axis=1) - 1).max() > 0.1


@each_round
def test_in_windows_they_sum_to_one_over_all_parents_whose_window_holds_the_child(name, iterations):
    options = {"iterations": iterations, "windows": WINDOWS}
    couplings = route(name, draw(*VOTES_IN_WINDOWS), **options).couplings.data
    total = {}
    for n, i in np.ndindex(couplings.shape[:2]):
        child, orphans = child_of(n, i, WINDOWS), couplings[n, i, 2:].sum()
        total[child] = total.get(child, orphans) + couplings[n, i, :2].sum()
    assert len(total) == 2 * 3 * 4 * 2
    np.testing.assert_allclose(list(total.values()), 1, rtol=1e-12)


@each_name
def test_the_order_of_the_children_does_not_matter(name):
    votes, order = draw(2, 6, 3, 4), [3, 0, 5, 1, 4, 2]
    a, b = route(name, votes), route(name, votes[:, order])
    np.testing.assert_allclose(a.poses.data, b.poses.data, rtol=1e-12)
    np.testing.assert_allclose(a.couplings.data[:, order], b.couplings.data, rtol=1e-12)


@each_name
def test_a_sample_is_routed_alone(name):
    votes = draw(5, 6, 3, 4)
    together = route(name, votes)
    for n in range(5):
        for x, y in zip(together, route(name, votes[n : n + 1]), strict=True):
            np.testing.assert_allclose(x.data[n], y.data[0], rtol=1e-12)


@each_name
def test_identical_starts_stay_identical_and_matrices_part_them(name):
    """If a child has the same vote for all parents, nothing distinguishes the parents."""
    u, weight = Tensor(draw(2, 6, 3)), draw(6, 1, 3, 4, seed=1)
    same, other = np.repeat(weight, 3, axis=1), draw(6, 3, 3, 4, seed=2)
    for iterations in (2, 3, 30):
        route = named(name, iterations=iterations)
        routed = route(make_votes(u, Tensor(same)))
        assert np.ptp(routed.poses.data, axis=1).max() < 1e-12
        assert np.ptp(routed.couplings.data[..., :3], axis=2).max() < 1e-12
        routed = route(make_votes(u, Tensor(same + 0.1 * other)))
        assert np.ptp(routed.couplings.data[..., :3], axis=2).max() > 0.01


def test_a_small_difference_between_parents_grows():
    votes = np.repeat(draw(1, 6, 1, 4), 3, axis=2)
    found = []
    for iterations in (2, 20, 300):
        routed = route("accumulate", votes + 1e-6 * draw(1, 6, 3, 4, seed=1), iterations=iterations)
        found.append(np.ptp(routed.couplings.data, axis=2).max())
    assert found[0] < 1e-4 < found[1] < found[2] and found[2] > 0.9


@both
@each_round
def test_the_history_is_that_of_every_iteration(name, iterations, plain):
    votes = Tensor(draw(2, 5, 3, 4), requires_grad=True)
    with keep_history():
        routed = named(name, plain=plain, iterations=iterations)(votes)
    history = routed.history
    assert len(history) == iterations
    assert not named(name, plain=plain, iterations=iterations)(votes).history
    for x, y in zip(routed, history[-1], strict=True):
        np.testing.assert_array_equal(x.data, y.data)
    for n, earlier in enumerate(history):
        assert not any(t.requires_grad for t in earlier)
        if n == 0 and iterations > 1:
            own = {key: value for key, value in ROUTES[name][2].items() if key != "update"}
            expected = ROUTES[name][0](votes, iterations=1, **own)
        else:
            expected = named(name, iterations=n + 1)(votes)
        for x, y in zip(earlier, expected, strict=True):
            np.testing.assert_allclose(x.data, y.data, rtol=1e-11, atol=1e-14)


# --- Fast equals plain ---------------------------------------------------------------------------


@pytest.mark.parametrize("windows", [None, WINDOWS], ids=["dense", "in windows"])
@each_round
def test_fast_equals_plain(name, iterations, windows):
    votes = draw(*VOTES_IN_WINDOWS)
    options = {"iterations": iterations, "windows": windows}
    choices = [{"squash": kind} for kind in KINDS]
    if iterations > 1:
        choices += [{"gradient": "stop"}, {"inverse_temperature": 0.5}]
        choices += [{"gradient": "stop", "inverse_temperature": 2.5, "squash": "half"}]
    for choice in choices:
        fast, plain = (named(name, plain, **options, **choice) for plain in (False, True))
        assert_same(differentiate(fast, votes), differentiate(plain, votes))


@both
@each_name
def test_both_have_the_same_defaults(name, plain):
    votes = draw(2, 5, 3, 4)
    defaults = {"iterations": 3, "gradient": "unrolled", "inverse_temperature": 1.0}
    defaults |= {"squash": "paper", "windows": None}
    explicit = differentiate(named(name, plain, **defaults), votes)
    assert_same(differentiate(named(name, plain), votes), explicit, 0)


# --- Gradients -----------------------------------------------------------------------------------


@pytest.mark.parametrize("windows", [None, WINDOWS], ids=["dense", "in windows"])
@each_round
def test_the_unrolled_gradient_is_that_of_central_differences(name, iterations, windows):
    options = {"iterations": iterations, "windows": windows}
    if iterations > 1:
        options["inverse_temperature"] = 1.5
    votes = draw(2, 4, 3, 2) if windows is None else draw(*VOTES_IN_WINDOWS)
    check_gradients(lambda votes: named(name, **options)(votes)[:2], votes)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["accumulate", "spherical", "distance"])
def test_the_unrolled_gradient_holds_for_every_squash(name, kind):
    check_gradients(lambda votes: named(name, squash=kind)(votes)[:2], draw(2, 4, 3, 2))


@both
@pytest.mark.parametrize(("iterations", "name"), [pair for pair in ROUNDS if pair[0] > 1])
def test_stop_takes_the_couplings_as_constants(name, iterations, plain):
    votes, cotangent = draw(2, 3, 2, 2), draw(2, 2, 2, seed=1)
    tensor = Tensor(votes, requires_grad=True)
    routed = named(name, plain, iterations=iterations, gradient="stop")(tensor)
    routed.poses.backward(cotangent)
    c = routed.couplings.data[..., :2].copy()
    c /= c.sum(axis=1, keepdims=True) if name == "distance" else 1

    def last_sum(votes):
        s = np.einsum("bij,bijd->bjd", c, votes)
        n = np.linalg.norm(s, axis=2, keepdims=True)
        return (n / (1 + n * n) * s * cotangent).sum()

    for index in np.ndindex(votes.shape):
        step = np.zeros_like(votes)
        step[index] = 1e-5
        slope = (last_sum(votes + step) - last_sum(votes - step)) / 2e-5
        assert tensor.grad[index] == pytest.approx(slope, rel=1e-6, abs=1e-8)


@each_name
def test_stop_and_unrolled_differ(name):
    votes = 2 * draw(2, 5, 3, 4)
    _, [unrolled] = differentiate(named(name), votes)
    _, [stop] = differentiate(named(name, gradient="stop"), votes)
    assert np.linalg.norm(unrolled - stop) > 0.2 * np.linalg.norm(unrolled)


@pytest.mark.parametrize("plain", [False, True])
@each_name
def test_couplings_carry_no_gradient(name, plain):
    votes = Tensor(draw(1, 2, 2, 2), requires_grad=True)
    assert not named(name, plain)(votes).couplings.requires_grad


def test_without_gradients_nothing_is_recorded():
    with no_grad():
        for name in ROUTES:
            assert not named(name)(Tensor(draw(1, 2, 2, 2), requires_grad=True)).poses.requires_grad


# --- Edges ---------------------------------------------------------------------------------------


def finite_routing(name, votes, **options):
    """Route with floating-point errors raised; check that all results are finite; return them."""
    with np.errstate(divide="raise", over="raise", invalid="raise"):
        routed, [grad] = differentiate(named(name, **options), votes)
    for array in (*(t.data for t in routed), grad):
        assert array.dtype == votes.dtype and np.isfinite(array).all()
    np.testing.assert_allclose(routed.couplings.data.sum(axis=2), 1, rtol=1e-5)
    if options.get("squash") != "none":
        assert (routed.activations.data <= 1 + 1e-6).all()
    return routed


@pytest.mark.parametrize("dtype", thinned([np.float32, np.float64]))
@pytest.mark.parametrize("edge", EDGES)
@both
def test_edges_give_numbers(edge, dtype, plain):
    votes = EDGES[edge].astype(dtype)
    for name in ROUTES:
        for gradient in ("unrolled", "stop"):
            finite_routing(name, votes, plain=plain, gradient=gradient)
        if not plain:
            finite_routing(name, votes, iterations=50)
        if "update" not in ROUTES[name][2]:
            finite_routing(name, votes, plain=plain, iterations=1)
    for kind in KINDS:
        finite_routing("spherical", votes, plain=plain, squash=kind)
        finite_routing("distance", votes, plain=plain, squash=kind)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", [name for name in ROUTES if name != "distance"])  # it squares them
def test_votes_of_1e19(name, dtype):
    votes = (1e19 * draw(2, 5, 3, 4)).astype(dtype)
    for kind in SQUASHES:
        finite_routing(name, votes, squash=kind)


@each_name
def test_one_parent_gets_everything(name):
    couplings = route(name, draw(2, 5, 1, 4)).couplings.data
    assert (couplings == 1).all() if couplings.shape[2] == 1 else (couplings < 1).all()


@each_name
def test_identical_votes_are_divided_equally(name):
    couplings = route(name, EDGES["identical votes"]).couplings.data[..., :3]
    np.testing.assert_allclose(np.ptp(couplings, axis=2), 0, atol=1e-14)


@both
@each_name
def test_zero_votes_give_the_zero_vector_and_no_gradient(name, plain):
    routed, [grad] = differentiate(named(name, plain), np.zeros((2, 5, 3, 4)))
    assert not routed.poses.data.any() and not routed.activations.data.any() and not grad.any()


@pytest.mark.parametrize("beta", [2, 2.0, np.float64(2)])
@both
@each_name
def test_float32_stays_float32(name, plain, beta):
    votes = draw(2, 5, 3, 4).astype(np.float32)
    routed, [grad] = differentiate(named(name, plain, inverse_temperature=beta), votes)
    assert {t.dtype for t in routed} | {grad.dtype} == {np.dtype(np.float32)}


@pytest.mark.parametrize("gradient", ["unrolled", "stop"])
@both
@each_name
def test_an_empty_batch_is_routed_to_an_empty_batch(name, plain, gradient):
    votes = np.zeros((0, 5, 3, 4))
    routed, [grad] = differentiate(named(name, plain, gradient=gradient), votes)
    parents = 4 if "leaky" in name else 3
    shapes = (0, 3, 4), (0, 3), (0, 5, parents), (0, 5, 3, 4)
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
@each_name
def test_the_memory_layout_of_the_votes_does_not_matter(name, layout):
    votes = draw(2, 5, 3, 4)
    other = layout(votes)
    assert not other.flags.c_contiguous
    assert_same(differentiate(named(name), votes), differentiate(named(name), other), 1e-13)


def test_routing_leaves_no_work_for_the_cyclic_collector():
    def work():
        for name, plain in itertools.product(ROUTES, (False, True)):
            differentiate(named(name, plain), EDGES["one child"])

    work()
    with collector_off():
        work()
        assert gc.collect() == 0


# --- Errors --------------------------------------------------------------------------------------

NO_EFFECT = "has no effect in 1 iteration, as all couplings are equal: leave it out"


@both
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"iterations": 0}, "takes 1 to 10,000 iterations, not 0"),
        ({"iterations": -1}, "takes 1 to 10,000 iterations, not -1"),
        ({"iterations": 10**9}, "takes 1 to 10,000 iterations, not 1000000000"),
        ({"gradient": "full"}, "unknown gradient 'full': choose unrolled, stop, implicit"),
        ({"squash": "cube"}, "unknown squash 'cube': choose paper, half"),
        ({"inverse_temperature": 0}, "positive and finite, not 0"),
        ({"inverse_temperature": -1.0}, "positive and finite, not -1.0"),
        ({"inverse_temperature": np.inf}, "positive and finite, not inf"),
        ({"inverse_temperature": np.nan}, "positive and finite, not nan"),
        ({"iterations": 1, "gradient": "stop"}, f"gradient 'stop' {NO_EFFECT}"),
        ({"iterations": 1, "gradient": "implicit"}, f"gradient 'implicit' {NO_EFFECT}"),
        ({"iterations": 1, "inverse_temperature": 2.0}, f"inverse_temperature 2.0 {NO_EFFECT}"),
    ],
)
def test_senseless_options_are_refused(plain, options, message):
    for name in ("accumulate", "leaky", "distance"):
        with pytest.raises(ValueError, match=message):
            route(name, draw(2, 5, 3, 4), plain=plain, **options)


@each_routing
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"update": "average"}, "unknown update 'average': choose accumulate, recompute, spher"),
        ({"iterations": 1, "update": "recompute"}, f"update 'recompute' {NO_EFFECT}"),
        ({"gradient": "implicit"}, 'update "accumulate" has none: its logits grow in every'),
    ],
)
def test_senseless_updates_are_refused(route, options, message):
    with pytest.raises(ValueError, match=message):
        route(Tensor(draw(2, 5, 3, 4)), **options)


@both
@each_name
def test_an_unknown_option_is_refused(name, plain):
    with pytest.raises(TypeError, match="temperature"):
        route(name, draw(2, 5, 3, 4), plain=plain, temperature=1)


@both
@each_name
@pytest.mark.parametrize("shape", [(5, 3, 4), (1, 2, 5, 3, 4), (2, 0, 3, 4), (2, 5, 0, 4)])
def test_what_is_no_votes_is_refused(name, plain, shape):
    with pytest.raises(ValueError, match=r"votes must have shape \(B, I, J, D\) .* not \("):
        route(name, np.zeros(shape), plain=plain)


# --- On the device -------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("gradient", ["unrolled", "stop"])
@each_name
def test_the_device_computes_the_same(strict_cupy, name, plain, gradient):
    options = {"gradient": gradient, "inverse_temperature": 1.5, "windows": WINDOWS}

    def differentiate_on(xp):
        votes = Tensor(xp.asarray(draw(*VOTES_IN_WINDOWS)), requires_grad=True)
        routed = named(name, plain, **options)(votes)
        (routed.poses.sum() + routed.activations.sum()).backward()
        return [*(t.data for t in routed), votes.grad]

    on_device = differentiate_on(strict_cupy)
    assert not strict_cupy.host_syncs
    for x, y in zip(on_device, differentiate_on(np), strict=True):
        assert isinstance(x, strict_cupy.ndarray)
        np.testing.assert_allclose(x.get(), y, rtol=1e-12, atol=1e-13)
