"""EM routing, plain and fused: its steps, its gradients, and mixtures of Gaussians."""

import warnings

import numpy as np
import pytest
from sklearn.mixture import GaussianMixture
from thinning import thinned

from minicaps import Tensor, routing
from minicaps.clustering import gmm
from minicaps.gradcheck import check_gradients
from minicaps.routing import centred, keep_history
from minicaps.routing.couplings import Windows
from minicaps.routing.em import STEPS, em, em_plain, paper_schedule

B, I, J, D = 3, 6, 4, 2
RNG = np.random.default_rng(7)
VOTES = RNG.normal(size=(B, I, J, D))
ACTIVATIONS = RNG.uniform(0.1, 0.9, (B, I))
BETAS = RNG.normal(size=(2, J))

each_step = pytest.mark.parametrize("step", STEPS)


def draw_start(rng, shape=(B, I, J)):
    start = rng.uniform(0.1, 1, shape)
    return start / start.sum(axis=2, keepdims=True)


def arguments(step, votes=VOTES, activations=ACTIVATIONS, betas=BETAS):
    """Return the tensors that `step` needs, by name."""
    given = {"votes": votes}
    if step in STEPS[2:]:
        given["activations"] = activations
    if step != "gmm":
        given |= {"beta_u": betas[0], "beta_a": betas[1]}
    return given


def route(given, step, *, routing=em, **options):
    if step != "gmm":
        options.setdefault("inverse_temperature", 0.7)
    return routing(step=step, **given, **options)


def differentiate(given, step, **options):
    """Return the routing's results and the gradients of a random loss of poses and activations."""
    tensors = {name: Tensor(np.array(a), requires_grad=True) for name, a in given.items()}
    routed = route(tensors, step, **options)
    rng = np.random.default_rng(5)
    loss = sum((x * rng.normal(size=x.shape).astype(x.dtype)).sum() for x in routed[:2])
    loss.backward()
    return [x.data for x in routed], [t.grad for t in tensors.values()]


WINDOWS = Windows((4, 5), 2, 1, 3)  # 3 × 4 windows of 2·2·3 children
IN_WINDOWS = {
    "votes": RNG.normal(size=(24, 12, 2, 3)),
    "activations": RNG.uniform(0.1, 0.9, (24, 12)),
    "betas": RNG.normal(size=(2, 2)),
}


# --- By hand -------------------------------------------------------------------------------------


def test_one_iteration_by_hand():
    """Two children at 1 and 3 with activations 1 and ½, and one parent."""
    votes, activations = np.array([[[[1.0]], [[3.0]]]]), np.array([[1.0, 0.5]])
    betas = Tensor([2.0]), Tensor([0.3])
    routed = em(Tensor(votes), Tensor(activations), *betas, iterations=1, inverse_temperature=0.5)
    mean = (1 + 0.5 * 3) / 1.5
    variance = ((1 - mean) ** 2 + 0.5 * (3 - mean) ** 2) / 1.5
    cost = (2.0 + 0.5 * np.log(variance)) * 1.5
    np.testing.assert_allclose(routed.poses.data, [[[mean]]], rtol=1e-12)
    np.testing.assert_allclose(routed.activations.data, 1 / (1 + np.exp(-0.5 * (0.3 - cost))))
    np.testing.assert_array_equal(routed.couplings.data, [[[1.0], [1.0]]])


def test_the_schedule_of_the_paper():
    np.testing.assert_allclose([paper_schedule(t) for t in range(3)], [5e-4, 9.75e-4, 1.42625e-3])
    given = arguments("complete")
    tensors = {name: Tensor(a) for name, a in given.items()}
    by_default = em(**tensors, iterations=2).activations.data
    by_hand = em(**tensors, iterations=2, inverse_temperature=lambda t: [5e-4, 9.75e-4][t])
    np.testing.assert_allclose(by_default, by_hand.activations.data, rtol=1e-14)


# --- The same in two ways ------------------------------------------------------------------------


@each_step
@pytest.mark.parametrize("gradient", ["unrolled", "stop"])
@pytest.mark.parametrize("iterations", [1, 2, 3, 5])
def test_fused_is_plain(step, gradient, iterations):
    if iterations == 1 and gradient == "stop":
        gradient = "unrolled"
    options = {"iterations": iterations, "gradient": gradient}
    same(arguments(step), step, **options)
    same(arguments(step), step, **options, start=Tensor(draw_start(RNG)))


@each_step
def test_fused_is_plain_in_windows(step):
    same(arguments(step, **IN_WINDOWS), step, windows=WINDOWS)


@each_step
def test_fused_is_plain_where_parents_are_empty_and_variances_at_the_floor(step):
    votes, activations = VOTES.copy(), ACTIVATIONS.copy()
    votes[0, :, 1] = 0.5  # all alike
    activations[1] = 0
    start = draw_start(RNG)
    start[2, :, 3] = 0
    given = arguments(step, votes, activations)
    same(given, step, start=Tensor(start), floor=0.05)


TIGHT = np.random.default_rng(8)
NEAR = np.where(np.arange(12)[:, None, None] % 3 == 0, 0.01, 1.0)  # every third vote is near 4
CROWD = 4 * (NEAR < 1) + NEAR * TIGHT.normal(size=(3, 12, 2, 5))


@each_step
def test_fused_is_plain_where_means_leave_their_centres(step):
    given = arguments(step, CROWD, TIGHT.uniform(0.1, 0.9, (3, 12)), TIGHT.normal(size=(2, 2)))
    same(given, step, iterations=5)


def test_a_moved_centre_saves_digits(monkeypatch):
    """In float32, variances far below the squared distances from a fixed centre would be noise."""
    start = np.where(np.arange(12)[:, None] % 3 == 0, [0.999, 0.001], [0.001, 0.999])
    votes = np.where(np.arange(12)[:, None] % 3 == 0, 4 + 1e-3 * CROWD[0, :, 0], CROWD[0, :, 0])
    X = votes.T[None, None]  # (B, J, D, I)

    def variance(dtype):
        held = centred.Centred(X.astype(dtype), np.zeros((1, 1, 5), dtype))
        return held.m_step(start.T[None, :1].astype(dtype), 1e-12)[-1]

    exact = variance("float64")
    np.testing.assert_allclose(variance("float32"), exact, rtol=1e-5)
    monkeypatch.setattr(centred, "FAR", np.inf)
    assert (np.abs(variance("float32") / exact - 1) > 1e-4).any()


def same(given, step, **options):
    one = differentiate(given, step, routing=em, **options)
    two = differentiate(given, step, routing=em_plain, **options)
    for found, expected in zip([*one[0], *one[1]], [*two[0], *two[1]], strict=True):
        scale = 1 + np.abs(expected).max()
        np.testing.assert_allclose(found / scale, expected / scale, rtol=0, atol=1e-10)


@each_step
@pytest.mark.parametrize("iterations", thinned([1, 2, 3, 5], (1, 3)))
def test_gradients_are_those_of_central_differences(step, iterations):
    given = arguments(step)

    def function(*tensors):
        named = dict(zip(given, tensors, strict=True))
        return route(named, step, iterations=iterations)[:2]

    check_gradients(function, *given.values())


def test_gradients_in_windows():
    given = arguments("complete", **IN_WINDOWS)

    def function(*tensors):
        return route(dict(zip(given, tensors, strict=True)), "complete", windows=WINDOWS)[:2]

    check_gradients(function, *given.values())


@each_step
def test_stop_takes_the_last_responsibilities_as_constants(step):
    given = arguments(step)
    routed, gradients = differentiate(given, step, gradient="stop")
    λ = {} if step == "gmm" else {"inverse_temperature": 0.7}
    fixed = {"start": Tensor(routed[2]), "iterations": 1, **λ}
    again, by_constants = differentiate(given, step, **fixed)
    for found, expected in zip([*routed, *gradients], [*again, *by_constants], strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    unrolled = differentiate(given, step)[1][0]
    assert np.linalg.norm(gradients[0] - unrolled) > 0.1 * np.linalg.norm(unrolled)


# --- What it means -------------------------------------------------------------------------------


def test_gmm_steps_are_those_of_scikit_learn():
    """Start from random responsibilities; the votes of one sample are the data of a mixture."""
    x, start = RNG.normal(size=(40, D)), draw_start(RNG, (1, 40, J))
    votes = np.broadcast_to(x[None, :, None], (1, 40, J, D))
    means = np.array([np.average(x, axis=0, weights=start[0, :, j]) for j in range(J)])
    variances = [np.cov(x.T, aweights=start[0, :, j], ddof=0).diagonal() for j in range(J)]
    for iterations in (1, 2, 5):
        routed = em(Tensor(votes), step="gmm", start=Tensor(start), iterations=iterations)
        mixture = GaussianMixture(
            J,
            covariance_type="diag",
            reg_covar=0,
            tol=0,
            max_iter=max(1, iterations - 1),
            means_init=means,
            weights_init=start[0].mean(axis=0),
            precisions_init=1 / np.array(variances),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it has not converged
            mixture.fit(x)
        expected = means if iterations == 1 else mixture.means_
        np.testing.assert_allclose(routed.poses.data[0], expected, rtol=1e-8)
        if iterations > 1:
            np.testing.assert_allclose(routed.activations.data[0], mixture.weights_, rtol=1e-8)


@pytest.mark.parametrize("iterations", [1, 2, 4])
def test_gmm_steps_are_those_of_our_own_diagonal_mixture(iterations):
    x, start = RNG.normal(size=(40, D)), draw_start(RNG, (1, 40, J))
    votes = np.broadcast_to(x[None, :, None], (1, 40, J, D))
    with keep_history():
        history = em(Tensor(votes), step="gmm", start=Tensor(start), iterations=iterations).history
    mixture = gmm(x, J, covariance="diagonal", start=start[0], iterations=iterations)
    for routed, clusters in zip(history, mixture.history, strict=False):
        np.testing.assert_allclose(routed.poses.data[0], clusters.centres, rtol=1e-10)
        np.testing.assert_allclose(routed.activations.data[0], clusters.weights, rtol=1e-10)


@pytest.mark.parametrize("step", STEPS[2:])
def test_outputs_depend_on_the_activations_of_the_inputs(step):
    quiet = ACTIVATIONS.copy()
    quiet[:, 0] *= 0.01
    one = route({k: Tensor(v) for k, v in arguments(step).items()}, step)
    two = route({k: Tensor(v) for k, v in arguments(step, activations=quiet).items()}, step)
    assert np.abs(one.poses.data - two.poses.data).min() > 1e-4
    assert np.abs(one.activations.data - two.activations.data).min() > 1e-6


def test_doubled_activations_matter_in_the_complete_step_only():
    """If shares are normalized, the number of votes drops out; the paper's sum retains it."""

    def activations_of(step, factor):
        given = arguments(step, activations=factor * ACTIVATIONS)
        return route({k: Tensor(v) for k, v in given.items()}, step).activations.data

    once, twice = (activations_of("input-activation", k) for k in (0.5, 1))
    np.testing.assert_allclose(once, twice, rtol=1e-10)
    once, twice = (activations_of("complete", k) for k in (0.5, 1))
    assert np.abs(once - twice).min() > 1e-3


def test_united_votes_raise_the_activation():
    """Agreement (small σ) raises a_j as long as β_u + Σ ln σ_j and its weight keep their signs."""
    wide = {k: Tensor(v) for k, v in arguments("activation").items()}
    narrow = {k: Tensor(v) for k, v in arguments("activation", votes=0.3 * VOTES).items()}
    options = {"iterations": 1}
    assert (
        route(narrow, "activation", **options).activations.data
        > route(wide, "activation", **options).activations.data
    ).all()


@each_step
def test_couplings_sum_to_one_over_parents(step):
    with keep_history():
        history = route({k: Tensor(v) for k, v in arguments(step).items()}, step).history
    assert len(history) == 3
    for routed in history:
        np.testing.assert_allclose(routed.couplings.data.sum(axis=2), 1, rtol=1e-12)
    np.testing.assert_allclose(history[0].couplings.data, 1 / J)


def test_in_windows_a_child_divides_itself_among_all_windows_that_hold_it():
    """Collect the couplings of every child over the windows by brute force."""
    given = {k: Tensor(v) for k, v in arguments("complete", **IN_WINDOWS).items()}
    couplings = route(given, "complete", windows=WINDOWS).couplings.data
    (p, q), total = WINDOWS.grid, np.zeros((2, 4, 5, 3))
    for n, window in enumerate(couplings.reshape(2, p, q, 2, 2, 3, 2)):
        for i in range(p):
            for j in range(q):
                total[n, i : i + 2, j : j + 2] += window[i, j].sum(axis=-1)
    np.testing.assert_allclose(total, 1, rtol=1e-12)


@each_step
def test_the_order_of_children_does_not_matter(step):
    order = RNG.permutation(I)
    given = arguments(step)
    moved = arguments(step, VOTES[:, order], ACTIVATIONS[:, order])
    one, two = (route({k: Tensor(v) for k, v in g.items()}, step) for g in (given, moved))
    np.testing.assert_allclose(one.poses.data, two.poses.data, rtol=1e-10)
    np.testing.assert_allclose(one.activations.data, two.activations.data, rtol=1e-10)
    np.testing.assert_allclose(one.couplings.data[:, order], two.couplings.data, rtol=1e-8)


@each_step
def test_a_sample_does_not_depend_on_its_batch(step):
    alone = arguments(step, VOTES[1:2], ACTIVATIONS[1:2])
    one = route({k: Tensor(v) for k, v in arguments(step).items()}, step)
    two = route({k: Tensor(v) for k, v in alone.items()}, step)
    for together, single in zip(one, two, strict=True):
        np.testing.assert_allclose(together.data[1:2], single.data, rtol=1e-12)


def test_identical_starts_stay_identical():
    """Equal votes for all parents cannot distinguish the parents, but different votes can."""
    votes = np.repeat(VOTES[:, :, :1], J, axis=2)
    given = arguments("complete", votes, betas=np.ones((2, J)))
    routed = route({k: Tensor(v) for k, v in given.items()}, "complete", iterations=10)
    np.testing.assert_allclose(routed.couplings.data, 1 / J, rtol=1e-9)
    np.testing.assert_allclose(np.ptp(routed.poses.data, axis=1), 0, atol=1e-9)
    noisy = arguments("complete", votes + 1e-6 * VOTES, betas=np.ones((2, J)))
    routed = route({k: Tensor(v) for k, v in noisy.items()}, "complete", iterations=50)
    assert np.ptp(routed.couplings.data) > 0.5


# --- Edges ---------------------------------------------------------------------------------------

EDGES = {
    "one child": (VOTES[:, :1], ACTIVATIONS[:, :1]),
    "one parent": (VOTES[:, :, :1], ACTIVATIONS),
    "zero activations": (VOTES, 0 * ACTIVATIONS),
    "one active child": (VOTES, ACTIVATIONS * (np.arange(I) == 2)),
    "identical votes": (np.ones_like(VOTES), ACTIVATIONS),
    "zero votes": (0 * VOTES, ACTIVATIONS),
    "huge votes": (1e4 * VOTES, ACTIVATIONS),
    "vast votes": (1e13 * VOTES, ACTIVATIONS),
    "tiny votes": (1e-8 * VOTES, ACTIVATIONS),
    "far votes": (1e4 + VOTES, ACTIVATIONS),
    "an outlier": (np.where(np.arange(I)[:, None, None] == 0, 1e4, VOTES), ACTIVATIONS),
    "no samples": (VOTES[:0], ACTIVATIONS[:0]),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("iterations", thinned([1, 3, 50], (3,)))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("edge", EDGES)
@each_step
def test_nothing_is_nan(step, edge, dtype, iterations):
    votes, activations = (a.astype(dtype) for a in EDGES[edge])
    given = arguments(step, votes, activations, BETAS[:, : votes.shape[2]].astype(dtype))
    for route_by in (em, em_plain):
        routed, gradients = differentiate(given, step, iterations=iterations, routing=route_by)
        for a in (*routed, *gradients):
            assert a.dtype == dtype and np.isfinite(a).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"votes": np.ones((2, 3, 4))}, "votes must have shape"),
        ({"votes": np.ones((3, 0, 4, 2))}, "I, J, D > 0"),
        ({"activations": np.ones((3, 5))}, r"activations must have shape \(3, 6\)"),
        ({"activations": ACTIVATIONS - 0.5}, "activations must be from 0 to 1, but these .* -0"),
        ({"activations": ACTIVATIONS + 0.5}, "activations must be from 0 to 1, .* to 1.3"),
        ({"activations": None}, "needs activations"),
        ({"beta_u": None}, "needs beta_u"),
        ({"beta_a": np.ones(3)}, r"beta_a must have shape \(4,\)"),
        ({"step": "gmm"}, "does not use activations"),
        ({"step": "activation"}, "does not use activations"),
        ({"step": "half"}, "unknown step 'half'"),
        ({"iterations": 0}, "takes 1 to 10,000 iterations"),
        ({"iterations": 10**12}, "takes 1 to 10,000 iterations"),
        ({"gradient": "implicit"}, "unrolled or stop"),
        ({"gradient": "stop", "iterations": 1}, "leave"),
        ({"inverse_temperature": 0}, "positive and finite"),
        ({"inverse_temperature": lambda t: -1.0}, "positive and finite"),
        ({"floor": 0.0}, "floor must be positive"),
        ({"start": np.ones((3, 6, 2))}, r"start must have shape \(3, 6, 4\)"),
        ({"start": -np.ones((3, 6, 4))}, "start must be from 0 to 1, but these are from -1 to -1"),
    ],
)
def test_what_makes_no_sense_is_refused(change, message):
    options = {"step": "complete", **arguments("complete"), **change}
    options = {k: Tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
    with pytest.raises(ValueError, match=message):
        em(**options)


@pytest.mark.filterwarnings("ignore:invalid value")
def test_an_activation_that_is_nan_stays_nan_and_harms_no_other_sample():
    activations = ACTIVATIONS.copy()
    activations[1, 2] = np.nan
    given = {k: Tensor(v) for k, v in arguments("complete", activations=activations).items()}
    routed = route(given, "complete")
    for result in routed[:2]:
        wrong = np.isnan(result.data).reshape(B, -1)
        np.testing.assert_array_equal(wrong.all(axis=1), [False, True, False])
        np.testing.assert_array_equal(wrong.any(axis=1), [False, True, False])


def test_wide_numbers_beside_narrow_votes_change_no_dtype():
    given = {k: Tensor(v.astype(np.float32)) for k, v in arguments("complete").items()}
    start = Tensor(draw_start(RNG))  # float64
    for route_by in (em, em_plain):
        for λ in (np.float64(0.5), lambda t: np.sqrt(t + 1.0)):
            routed = route_by(**given, start=start, inverse_temperature=λ)
            assert {x.dtype for x in routed} == {np.dtype(np.float32)}


def test_a_floor_that_the_precision_does_not_have_is_refused():
    given = {k: Tensor(v.astype(np.float32)) for k, v in arguments("complete").items()}
    with pytest.raises(ValueError, match="floor must be positive and finite in float32"):
        em(**given, floor=1e-45)


def test_a_temperature_without_effect_is_refused():
    with pytest.raises(ValueError, match="no effect"):
        em(Tensor(VOTES), step="gmm", inverse_temperature=1.0)


def test_votes_get_exact_gradients_from_a_mean_that_leaves_its_first_centre():
    """Digits would cancel if all iterations were summed about the first centre."""
    rng = np.random.default_rng(0)
    tight = (np.arange(12) % 2 == 0)[:, None] == (np.arange(2) == 0)
    noise = rng.normal(size=(1, 12, 2, 4))
    votes = np.where(tight[..., None], 0.01 * noise, 1e4 * (noise + 1)).astype(np.float32)
    start = np.where(tight, 0.6, 0.4)[None]

    def gradient(route_by, dtype):
        given = arguments("complete", votes, np.full((1, 12), 0.5), np.zeros((2, 2)))
        given = {k: Tensor(v.astype(dtype), requires_grad=k == "votes") for k, v in given.items()}
        routed = route_by(**given, start=start, floor=1e-6, inverse_temperature=0.05, iterations=3)
        routed.activations.sum().backward()
        return given["votes"].grad

    expected = gradient(em_plain, "float64")
    error = np.abs(gradient(em, "float32") - expected).max()
    assert error < 2e-4 * np.abs(expected).max()  # plain in float32: 3e-5; about one centre: 2e-2


def test_a_vote_that_is_nan_leaves_no_finite_mean_in_its_sample():
    votes = VOTES.copy()
    votes[0, 0, 0, 0] = np.nan
    for route_by in (em, em_plain):
        with np.errstate(invalid="ignore"):
            poses = route_by(Tensor(votes), step="gmm", iterations=3).poses.data
        assert np.isnan(poses[0]).all(), route_by
        assert np.isfinite(poses[1:]).all()


# --- On the device -------------------------------------------------------------------------------


@each_step
@pytest.mark.parametrize("routing", [em, em_plain])
def test_the_device_computes_the_same(strict_cupy, step, routing):
    given = arguments(step, **IN_WINDOWS)

    def on(xp):
        tensors = {k: Tensor(xp.asarray(v), requires_grad=True) for k, v in given.items()}
        routed = route(tensors, step, windows=WINDOWS, routing=routing)
        (routed.poses.sum() + routed.activations.sum()).backward()
        return [*(x.data for x in routed), *(t.grad for t in tensors.values())]

    found = on(strict_cupy)
    assert not strict_cupy.host_syncs
    for x, y in zip(found, on(np), strict=True):
        np.testing.assert_allclose(x.get(), y, rtol=1e-10, atol=1e-12)


def test_em_is_exported():
    assert routing.em is em
