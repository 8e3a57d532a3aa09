"""Clustering: agreement with scikit-learn, objectives that only improve, limits, edge cases."""

import math
import warnings
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from minicaps.clustering import gmm, kmeans, soft_kmeans, spherical_kmeans
from minicaps.clustering.mixture import COVARIANCES

each_covariance = pytest.mark.parametrize("covariance", COVARIANCES)

# name -> clustering with its specific options
CLUSTERINGS = {
    "kmeans": kmeans,
    "soft": lambda x, k, **o: soft_kmeans(x, k, inverse_temperature=0.7, **o),
    "spherical": spherical_kmeans,
    "spherical soft": lambda x, k, **o: spherical_kmeans(x, k, inverse_temperature=1.5, **o),
    "full": gmm,
    "diagonal": lambda x, k, **o: gmm(x, k, covariance="diagonal", **o),
    "isotropic": lambda x, k, **o: gmm(x, k, covariance="isotropic", **o),
    "sigma": lambda x, k, **o: gmm(x, k, covariance="isotropic", sigma=0.8, **o),
}
MIXTURES = ("full", "diagonal", "isotropic", "sigma")
each_clustering = pytest.mark.parametrize("name", CLUSTERINGS)


def blobs(centres=((0, 0, 0), (3, 0, 1), (0, 3, -1)), spread=0.8, members=50, seed=0):
    """Draw points (n, d) around centers, with a different variance along each axis."""
    rng = np.random.default_rng(seed)
    axes = np.linspace(0.6, 1.4, len(centres[0]))
    return np.concatenate([rng.normal(c, spread * axes, (members, len(c))) for c in centres])


X = blobs()
START = X[[0, 3, 70]]  # two of the centers start in one cluster, so that they have to move


def squared(x, v):
    return ((x[:, None] - v) ** 2).sum(axis=2)


def shares(n, k, seed=0):
    """Draw random responsibilities."""
    return np.random.default_rng(seed).dirichlet(np.ones(k), n)


# --- Equal to scikit-learn -----------------------------------------------------------------------


@pytest.mark.parametrize("iterations", [1, 2, 4, 100])
def test_kmeans_is_that_of_scikit_learn(iterations):
    options = {"n_init": 1, "max_iter": iterations, "tol": 0, "algorithm": "lloyd"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        theirs = KMeans(3, init=START, **options).fit(X)
    ours = kmeans(X, 3, start=START, iterations=iterations)
    np.testing.assert_allclose(ours.centres, theirs.cluster_centers_, rtol=1e-10)
    np.testing.assert_array_equal(ours.responsibilities.argmax(axis=1), theirs.labels_)
    assert ours.objective == pytest.approx(theirs.inertia_, rel=1e-10)


@each_covariance
@pytest.mark.parametrize("iterations", [1, 2, 30])
def test_a_mixture_is_that_of_scikit_learn(covariance, iterations):
    ours = gmm(X, 3, covariance=covariance, start=START, iterations=iterations)
    start = ours.history[0]
    precisions = 1 / start.covariances
    if covariance == "full":
        precisions = np.linalg.inv(start.covariances)
    theirs = GaussianMixture(
        3,
        covariance_type={"full": "full", "diagonal": "diag", "isotropic": "spherical"}[covariance],
        tol=0,
        reg_covar=0,
        max_iter=iterations,
        means_init=START,
        weights_init=start.weights,
        precisions_init=precisions,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        theirs.fit(X)
    assert len(ours.history) == iterations + 1
    np.testing.assert_allclose(ours.centres, theirs.means_, rtol=1e-8)
    np.testing.assert_allclose(ours.weights, theirs.weights_, rtol=1e-8)
    np.testing.assert_allclose(ours.covariances, theirs.covariances_, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(ours.responsibilities, theirs.predict_proba(X), atol=1e-8)
    assert ours.objective == pytest.approx(theirs.score_samples(X).sum(), rel=1e-10)


def test_a_mixture_from_means_starts_with_the_covariance_of_all_points_and_equal_weights():
    full, diagonal, isotropic = (
        gmm(X, 3, covariance=c, start=START).history[0] for c in COVARIANCES
    )
    for first in (full, diagonal, isotropic):
        np.testing.assert_array_equal(first.centres, START)
        np.testing.assert_allclose(first.weights, 1 / 3)
    np.testing.assert_allclose(full.covariances, [np.cov(X.T, bias=True)] * 3)
    np.testing.assert_allclose(diagonal.covariances, [X.var(axis=0)] * 3)
    np.testing.assert_allclose(isotropic.covariances, [X.var(axis=0).mean()] * 3)


@each_covariance
def test_a_mixture_from_responsibilities_begins_with_their_moments(covariance):
    R = shares(len(X), 3)
    ours = gmm(X, 3, covariance=covariance, start=R, iterations=1)
    assert len(ours.history) == 1
    r = R / R.sum(axis=0)
    means = r.T @ X
    matrices = np.stack([(r[:, [j]] * (X - means[j])).T @ (X - means[j]) for j in range(3)])
    variances = matrices.diagonal(axis1=1, axis2=2)
    expected = {"full": matrices, "diagonal": variances, "isotropic": variances.mean(axis=1)}
    np.testing.assert_allclose(ours.weights, R.mean(axis=0))
    np.testing.assert_allclose(ours.centres, means)
    np.testing.assert_allclose(ours.covariances, expected[covariance], rtol=1e-10, atol=1e-12)
    # Bayes
    shape = {"full": ours.covariances, "diagonal": [np.diag(v) for v in variances]}
    matrices = shape.get(covariance, [v * np.eye(3) for v in variances.mean(axis=1)])
    joint = np.stack(
        [
            np.log(w) + multivariate_normal(m, s).logpdf(X)
            for w, m, s in zip(ours.weights, means, matrices, strict=True)
        ],
        axis=1,
    )
    total = logsumexp(joint, axis=1)
    np.testing.assert_allclose(ours.responsibilities, np.exp(joint - total[:, None]), atol=1e-12)
    assert ours.objective == pytest.approx(total.sum(), rel=1e-12)


# --- Objectives only improve ---------------------------------------------------------------------


def assert_improves(clusters, name, x):
    """No iteration makes the objective worse, up to rounding; every record is consistent."""
    sign = -1 if name in MIXTURES else 1
    objectives = sign * np.array([h.objective for h in clusters.history])
    scale = np.abs(x).max() ** (1 if "spherical" in name else 2)
    rounding = 1e-12 * len(x) * (1 + scale) if sign == 1 else 1e-9 * (1 + abs(objectives).max())
    if x.dtype == np.float32:
        rounding = 1e-3 * (1 + abs(objectives).max())
    assert (np.diff(objectives) <= rounding).all(), objectives
    for record in clusters.history:
        assert all(np.isfinite(f).all() for f in record[:5] if f is not None)
        np.testing.assert_allclose(record.responsibilities.sum(axis=1), 1, rtol=1e-6)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(
    name=st.sampled_from([*CLUSTERINGS, "high floor"]),
    n=st.integers(1, 12),
    d=st.integers(1, 3),
    digits=st.integers(0, 4),
    seed=st.integers(0, 10**6),
    data=st.data(),
)
def test_the_objective_never_gets_worse(name, n, d, digits, seed, data):
    x = (
        np.random.default_rng(seed).normal(size=(n, d)).round(digits)
    )  # few digits: some points are equal
    k = data.draw(st.integers(1, n))
    if name == "high floor":
        result, name = gmm(x, k, floor=0.3, seed=seed, iterations=20), "full"
    else:
        result = CLUSTERINGS[name](x, k, seed=seed, iterations=20)
    assert_improves(result, name, x)


@each_clustering
def test_the_result_is_the_last_of_the_history_which_begins_with_the_start(name):
    result = CLUSTERINGS[name](X, 3, start=START, iterations=5)
    np.testing.assert_array_equal(result.history[0].centres, START)
    assert 2 <= len(result.history) <= 6
    for field, last in zip(result[:5], result.history[-1][:5], strict=True):
        assert field is last


@each_clustering
def test_it_stops_where_another_iteration_changes_nothing(name):
    result = CLUSTERINGS[name](X, 3, start=START, iterations=2000)
    assert len(result.history) < 2000
    if name in ("full", "diagonal", "isotropic"):
        again = CLUSTERINGS[name](X, 3, start=result.responsibilities, iterations=1)
    else:
        again = CLUSTERINGS[name](X, 3, start=result.centres, iterations=1)
    np.testing.assert_allclose(again.centres, result.centres, atol=1e-12)
    assert again.objective == pytest.approx(result.objective, rel=1e-12)


def test_a_centre_that_moves_is_followed_though_hardly_any_share_is_its_own():
    """The share of each point is 5e-17, which is less than the rounding error of 1."""
    x = np.repeat([[0.0], [100.0]], 10, axis=0)
    result = soft_kmeans(x, 3, inverse_temperature=0.015, start=[[0], [100], [50 + 1e-6]])
    assert result.history[0].responsibilities[:, 2].max() < 1e-16
    np.testing.assert_allclose(result.centres[:, 0], [0, 100, 100], atol=1e-9)
    # Two centers on ten points: −(1/K) · 10 ln 2
    assert result.objective == pytest.approx(-10 * math.log(2) / 0.015)


# --- Soft and hard -------------------------------------------------------------------------------


def smooth_objective(v, x, K, distance):
    """Return −(1/K) Σ_i ln Σ_j e^(−K d_ij)."""
    return -logsumexp(-K * distance(x, v), axis=1).sum() / K


def disagreement(x, v):
    return -x @ (v / np.linalg.norm(v, axis=1, keepdims=True)).T


@pytest.mark.parametrize(
    ("cluster", "distance"), [(soft_kmeans, squared), (spherical_kmeans, disagreement)]
)
@pytest.mark.parametrize("K", [0.4, 3.0])
def test_the_gradient_of_the_smooth_objective_vanishes_at_the_end(cluster, distance, K):
    result = cluster(X, 3, inverse_temperature=K, start=START, iterations=3000)
    for record in result.history[:3]:
        expected = smooth_objective(record.centres, X, K, distance)
        assert record.objective == pytest.approx(expected, rel=1e-12)

    def gradient(v, step=1e-5):
        steps = step * np.eye(v.size).reshape(-1, *v.shape)
        rise = [
            smooth_objective(v + h, X, K, distance) - smooth_objective(v - h, X, K, distance)
            for h in steps
        ]
        return np.array(rise) / (2 * step)

    assert abs(gradient(START)).max() > 1
    assert abs(gradient(result.centres)).max() < 1e-6


@pytest.mark.parametrize(
    ("cluster", "hard"), [(soft_kmeans, kmeans), (spherical_kmeans, spherical_kmeans)]
)
@pytest.mark.parametrize("K", [1e6, 1e300, math.inf])
def test_soft_at_a_large_inverse_temperature_is_hard(cluster, hard, K):
    soft, hard = cluster(X, 3, inverse_temperature=K, start=START), hard(X, 3, start=START)
    np.testing.assert_array_equal(soft.responsibilities, hard.responsibilities)
    np.testing.assert_allclose(soft.centres, hard.centres, rtol=1e-12)
    assert soft.objective == pytest.approx(hard.objective, rel=1e-12)
    assert len(soft.history) == len(hard.history)


def test_spherical_kmeans_by_hand():
    # Directions decide, not distances: (9, 3) joins (1, 0). Centers are sums.
    x = np.array([[1.0, 0], [9, 3], [0, 2], [-1, 4]])
    result = spherical_kmeans(x, 2, start=[[2, 0], [0, 0.1]])
    np.testing.assert_array_equal(result.responsibilities, [[1, 0], [1, 0], [0, 1], [0, 1]])
    np.testing.assert_allclose(result.centres, [[10, 3], [-1, 6]])
    assert result.objective == pytest.approx(-math.sqrt(109) - math.sqrt(37))
    assert result.history[0].objective == pytest.approx(-1 - 9 - 2 - 4)


def test_soft_spherical_kmeans_by_hand():
    x, K = np.eye(2), math.log(3)
    start, moved, *_ = spherical_kmeans(x, 2, start=x, inverse_temperature=K).history
    np.testing.assert_allclose(start.responsibilities, [[0.75, 0.25], [0.25, 0.75]])
    assert start.objective == pytest.approx(-2 * math.log(4) / math.log(3))
    np.testing.assert_allclose(moved.centres, [[0.75, 0.25], [0.25, 0.75]])


def test_twice_the_followers_twice_the_length():
    x = np.array([[1.0, 2], [2, 1], [-1, -1]])
    once, twice = (spherical_kmeans(y, 2, start=x[1:]).centres for y in (x, np.repeat(x, 2, 0)))
    np.testing.assert_allclose(twice, 2 * once)


def test_a_mixture_of_fixed_sigma_is_soft_kmeans():
    sigma = 0.8
    mixture = gmm(X, 3, covariance="isotropic", sigma=sigma, start=START)
    soft = soft_kmeans(X, 3, inverse_temperature=1 / (2 * sigma**2), start=START)
    assert len(mixture.history) > 3
    for a, b in zip(mixture.history, soft.history, strict=False):
        np.testing.assert_allclose(a.centres, b.centres, rtol=1e-9)
        np.testing.assert_allclose(a.responsibilities, b.responsibilities, atol=1e-9)
        np.testing.assert_allclose(a.covariances, sigma**2)
        np.testing.assert_allclose(a.weights, 1 / 3)
    density = [multivariate_normal(m, sigma**2 * np.eye(3)).pdf(X) for m in mixture.centres]
    assert mixture.objective == pytest.approx(np.log(np.mean(density, axis=0)).sum())


def test_a_mixture_whose_sigma_goes_to_zero_is_kmeans():
    x = blobs(((0, 0), (5, 0), (0, 5)))
    hard = kmeans(x, 3, start=x[[0, 60, 120]])
    distances = []
    for variance in (1, 0.1, 0.01, 1e-20):
        soft = gmm(x, 3, covariance="isotropic", sigma=variance**0.5, start=x[[0, 60, 120]])
        distances.append(abs(soft.centres - hard.centres).max())
        assignments = soft.responsibilities.argmax(axis=1)
        np.testing.assert_array_equal(assignments, hard.responsibilities.argmax(axis=1))
    assert 0.1 > distances[0] > 10 * distances[1] > 1000 * distances[2]
    assert distances[2] < 1e-6
    assert distances[3] < 1e-14
    np.testing.assert_array_equal(soft.responsibilities, hard.responsibilities)


# --- Starts, empty clusters, floors --------------------------------------------------------------


def test_plus_plus_finds_blobs_that_lie_far_apart():
    centres = [(0, 0), (100, 0), (0, 100), (100, 100), (50, 300)]
    x = blobs(centres)
    for seed in range(20):
        start = kmeans(x, 5, seed=seed).history[0].centres
        assert sorted(squared(start, np.array(centres)).argmin(axis=1)) == [0, 1, 2, 3, 4]


@each_clustering
def test_a_seed_draws_the_same_start_again(name):
    first, again, other = (CLUSTERINGS[name](X, 3, seed=seed).history[0] for seed in (5, 5, 6))
    np.testing.assert_array_equal(first.centres, again.centres)
    assert (first.centres != other.centres).any()


def test_as_many_clusters_as_points_leave_nothing_to_pay():
    x = X[:9]
    hard, sphere = kmeans(x, 9), spherical_kmeans(x, 9)
    assert hard.objective == 0
    assert sphere.objective == pytest.approx(-np.linalg.norm(x, axis=1).sum())
    np.testing.assert_array_equal(hard.responsibilities.sum(axis=0), 1)


def test_an_empty_centre_moves_to_the_point_that_is_farthest_from_every_centre():
    x = np.array([[0.0], [1], [10], [11], [20]])
    result = kmeans(x, 3, start=[[5], [500], [900]])
    # All points join the first center, 8.4; 20 is farthest; then 0 is farthest from both.
    np.testing.assert_allclose(result.history[1].centres, [[8.4], [20], [0]])
    assert_improves(result, "kmeans", x)
    assert (result.responsibilities.sum(axis=0) > 0).all()


def test_an_empty_spherical_centre_moves_to_the_point_that_gains_most():
    x = np.array([[2.0, 0], [2, 0.1], [0, 0], [0, 1.5], [0.1, 0.1]])
    result = spherical_kmeans(x, 2, start=[[1, 0.5], [0, -1]])
    np.testing.assert_allclose(result.history[1].centres[1], [0, 1.5])
    assert_improves(result, "spherical", x)


def test_more_centres_than_different_points_end_soon():
    x = np.repeat([[0.1, 0.3], [0.7, 1e4]], 7, axis=0)
    for cluster in (kmeans, spherical_kmeans):
        result = cluster(x, 5)
        assert len(result.history) < 10
        assert_improves(result, cluster.__name__, x)


@pytest.mark.parametrize("name", ["soft", "spherical soft", *MIXTURES])
def test_a_soft_centre_that_gets_nothing_stays(name):
    far = np.array([[1e6, 1e6, 1e6], [-1e6, 0, 0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = CLUSTERINGS[name](X + 100, 2, start=far + 100, iterations=4)
    np.testing.assert_allclose(result.responsibilities.sum(axis=1), 1)
    lost = result.responsibilities.sum(axis=0) < 1e-20
    assert lost.any()
    np.testing.assert_array_equal(result.centres[lost], (far + 100)[lost])


@each_covariance
def test_the_floor_clips(covariance):
    # A line along (1, 1): one eigenvalue is 0, but no variance along the axes is.
    x = np.outer(np.linspace(-1, 1, 9), [1, 1]) @ np.diag([1, 1.0])
    variance = x[:, 0].var()
    clipped = gmm(x, 1, covariance=covariance, floor=0.1).covariances[0]
    raised = gmm(x, 1, covariance=covariance, floor=2.5).covariances[0]
    if covariance == "full":
        np.testing.assert_allclose(np.linalg.eigvalsh(clipped), [0.1, 2 * variance])
        np.testing.assert_allclose(raised, 2.5 * np.eye(2), atol=1e-12)
    else:
        np.testing.assert_allclose(clipped, variance)  # clipped, not added to
        np.testing.assert_allclose(raised, 2.5)


def test_the_floor_of_an_isotropic_mixture_clips_the_mean_of_the_variances():
    x = np.array([[-1.0, 0], [1, 0]])
    assert gmm(x, 1, covariance="isotropic", floor=0.4).covariances == pytest.approx([0.5])


@each_covariance
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("size", [1, 1e4])
def test_a_floor_that_rounding_cannot_see_does_no_harm(covariance, dtype, size):
    x = (X * size).astype(dtype)
    for points in (np.repeat(x[:2], 4, axis=0), np.repeat(x[:1], 4, axis=0), x[:5], 0 * x[:3]):
        for start in (None, points[:3] + 1e5):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                result = gmm(points, 3, covariance=covariance, floor=1e-37, start=start)
            assert_improves(result, covariance, points)


# --- Symmetry, numbers of any size, devices ------------------------------------------------------


@each_clustering
def test_permuting_points_permutes_responsibilities(name):
    order = np.random.default_rng(1).permutation(len(X))
    a = CLUSTERINGS[name](X, 3, start=START, iterations=8)
    b = CLUSTERINGS[name](X[order], 3, start=START, iterations=8)
    np.testing.assert_allclose(a.responsibilities[order], b.responsibilities, atol=1e-10)
    np.testing.assert_allclose(a.centres, b.centres, atol=1e-10)
    assert a.objective == pytest.approx(b.objective)


@each_clustering
@pytest.mark.parametrize(
    ("dtype", "size"),
    [("f4", 1), ("f4", 1e4), ("f4", 1e-8), ("f8", 1e4), ("f8", 1e-8), ("f8", 1e150), ("f8", 0)],
)
def test_numbers_of_any_size_stay_finite_and_in_their_dtype(name, dtype, size):
    x, cluster = (X * size).astype(dtype), CLUSTERINGS[name]
    if name == "sigma" and size > 1e100:
        cluster = partial(gmm, covariance="isotropic", sigma=size)
    for points in (x[::5], x[:1], np.repeat(x[:1], 6, axis=0), x[:3]):
        for k in {1, min(3, len(points))}:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                result = cluster(points, k)
            for field in result[:5]:
                if field is not None:
                    assert np.isfinite(field).all()
                    assert isinstance(field, float) or field.dtype == dtype
            np.testing.assert_allclose(result.responsibilities.sum(axis=1), 1, rtol=1e-5)


@each_covariance
@pytest.mark.parametrize("size", [1e-8, 1e4, 1e100])
def test_a_mixture_does_not_depend_on_units(covariance, size):
    a = gmm(X, 3, covariance=covariance, start=START, iterations=10)
    b = gmm(X * size, 3, covariance=covariance, start=START * size, iterations=10)
    np.testing.assert_allclose(b.responsibilities, a.responsibilities, atol=1e-9)
    np.testing.assert_allclose(b.centres / size, a.centres, atol=1e-9)
    np.testing.assert_allclose(b.covariances / size**2, a.covariances, atol=1e-9)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("f4", 1e-3), ("f8", 1e-9)])
@pytest.mark.parametrize("units", [[1e-5, 1, 1], [1, 1e6, 1e-3]])
def test_every_column_may_have_a_unit_of_its_own(covariance, dtype, tolerance, units):
    """A common floor of the variance would depend on the largest unit and merge clusters."""
    options = {"covariance": covariance, "iterations": 10}
    one = gmm(X.astype(dtype), 3, start=START, **options)
    other = gmm((X * units).astype(dtype), 3, start=START * units, **options)
    np.testing.assert_allclose(other.responsibilities, one.responsibilities, atol=tolerance)
    np.testing.assert_allclose(other.centres / units, one.centres, atol=tolerance)
    both = np.multiply.outer(units, units) if covariance == "full" else np.square(units)
    np.testing.assert_allclose(other.covariances / both, one.covariances, atol=tolerance)
    # p(x) dx stays
    log_volume = len(X) * np.log(units).sum()
    assert other.objective + log_volume == pytest.approx(one.objective, rel=tolerance)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_a_column_far_from_zero_takes_no_digits_from_the_others(covariance):
    """In float32, the variance of a column around 1e6 is pure rounding error; others are exact."""
    far = np.concatenate([X, np.full((len(X), 1), 1e6)], axis=1).astype("f4")
    start = far[[0, 3, 70]]
    with_it = gmm(far, 3, covariance=covariance, start=start, iterations=10)
    without = gmm(far[:, :3], 3, covariance=covariance, start=start[:, :3], iterations=10)
    np.testing.assert_allclose(with_it.centres[:, :3], without.centres, atol=1e-3)
    np.testing.assert_allclose(with_it.responsibilities, without.responsibilities, atol=1e-3)


@each_covariance
def test_small_numbers_in_float32_from_responsibilities_keep_their_variances(covariance):
    R = shares(len(X), 3)
    small = gmm((X * 1e-8).astype("f4"), 3, covariance=covariance, start=R, iterations=1)
    usual = gmm(X, 3, covariance=covariance, start=R, iterations=1)
    np.testing.assert_allclose(small.covariances / 1e-16, usual.covariances, rtol=1e-3, atol=1e-3)


def test_other_numbers_become_float64_and_nothing_given_is_changed():
    x = np.array([[0, 1], [4, 5], [4, 7]])
    start = np.array([[0.0, 1], [90, 9]])
    result = kmeans(x, 2, start=start)
    assert result.centres.dtype == np.float64
    np.testing.assert_allclose(result.centres, [[4, 6], [0, 1]])
    np.testing.assert_array_equal(start, [[0, 1], [90, 9]])
    assert not np.may_share_memory(result.history[0].centres, start)
    np.testing.assert_array_equal(kmeans(x.tolist(), 2, start=start).centres, result.centres)


STARTS = {
    "given": {"start": START},
    "drawn": {"seed": 3},
    "empty": {"start": START * [[1], [1], [-1e5]]},
    "responsibilities": {"start": shares(len(X), 3)},
}


@pytest.mark.parametrize(
    ("name", "start"),
    [(c, s) for c in CLUSTERINGS for s in STARTS if s != "responsibilities" or c in MIXTURES],
)
def test_the_device_computes_the_same(strict_cupy, name, start):
    options = STARTS[start]
    on_host = CLUSTERINGS[name](X, 3, iterations=6, **options)
    on_device = CLUSTERINGS[name](strict_cupy.asarray(X), 3, iterations=6, **options)
    for a, b in zip(on_device.history, on_host.history, strict=True):
        for x, y in zip(a[:5], b[:5], strict=True):
            if y is not None:
                assert isinstance(x, float if isinstance(y, float) else strict_cupy.ndarray)
                x = x if isinstance(x, float) else x.get()
                np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-12)


# --- Refusals ------------------------------------------------------------------------------------

NAN, ROWS = float("nan"), np.full((len(X), 3), 1 / 3)
BAD_FOR_ALL = [
    ({"x": X[0]}, r"x must have shape \(n, d\)"),
    ({"x": X[:0]}, r"x must have shape \(n, d\).*\(0, 3\)"),
    ({"x": np.where(X > 2, NAN, X)}, "x must be finite.*nan"),
    ({"x": np.where(X > 2, math.inf, X)}, "x must be finite.*inf"),
    ({"x": X * 1e200}, "the squares of x must have a finite sum"),
    ({"x": X * 1e-160}, "vanish in float64, and so would distances"),
    ({"x": np.float32(X * 1e-19)}, "vanish in float32"),
    ({"x": X.astype(complex)}, "real numbers, not complex128"),
    ({"k": 0}, "k must be an integer from 1 to 150, the number of points, not 0"),
    ({"k": 151}, "from 1 to 150.*151"),
    ({"k": 2.0}, "an integer from .*2.0"),
    ({"iterations": 0}, "at least 1, not 0"),
    ({"start": START[:2]}, r"start needs shape \(3, 3\).*not \(2, 3\)"),
    ({"start": START * NAN}, "start must be finite.*nan"),
    ({"start": START, "seed": 1}, "seed 1 has no effect"),
]


@each_clustering
@pytest.mark.parametrize(("bad", "message"), BAD_FOR_ALL)
def test_what_no_clustering_can_use_is_refused(name, bad, message):
    with pytest.raises(ValueError, match=message):
        CLUSTERINGS[name](**{"x": X, "k": 3} | bad)


@pytest.mark.parametrize("cluster", [soft_kmeans, spherical_kmeans])
@pytest.mark.parametrize("bad", [0, -1, NAN, -math.inf, 1e308])
def test_inverse_temperatures_that_cannot_be_are_refused(cluster, bad):
    with pytest.raises(ValueError, match="inverse_temperature must be positive, here"):
        cluster(X, 3, inverse_temperature=bad)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"covariance": "spherical"}, "unknown covariance 'spherical': choose full, diagonal"),
        ({"floor": 0}, "floor must be positive"),
        ({"floor": -1}, "floor must be positive"),
        ({"floor": NAN}, "floor must be positive"),
        ({"sigma": 1}, 'sigma needs covariance="isotropic" and no floor'),
        ({"sigma": 1, "covariance": "isotropic", "floor": 1}, "sigma needs .* no floor"),
        ({"sigma": 0, "covariance": "isotropic"}, "sigma must be positive"),
        ({"sigma": NAN, "covariance": "isotropic"}, "sigma must be positive"),
        ({"sigma": -1, "covariance": "isotropic"}, "sigma must be positive"),
        ({"sigma": 1e200, "covariance": "isotropic"}, "sigma must be positive, here"),
        ({"sigma": 1e-14, "covariance": "isotropic"}, "sigma must be positive, here"),
        ({"start": ROWS[:, :2]}, r"start needs shape \(3, 3\) or \(150, 3\), not \(150, 2\)"),
        ({"start": 2 * ROWS}, "must sum to 1 in each row.*off by 1"),
        ({"start": ROWS + np.array([2, -1, -1])}, "must not be negative.*-0.667"),
    ],
)
def test_mixtures_that_cannot_be_are_refused(bad, message):
    with pytest.raises(ValueError, match=message):
        gmm(X, 3, **bad)


@pytest.mark.parametrize("distance", [1000, 3000])
@pytest.mark.parametrize("covariance", ["full", "diagonal", "isotropic"])
def test_float32_measures_a_variance_at_its_own_cluster(covariance, distance):
    """Two pairs, each of variance 1, far apart: the largest variance of all sets no floor."""
    x = np.array([[0], [2], [distance], [distance + 2]], np.float32)
    start = np.array([[0], [distance]], np.float32)
    found = gmm(x, 2, covariance=covariance, floor=1e-3, start=start)
    np.testing.assert_allclose(found.covariances.ravel(), 1, rtol=1e-5)
    np.testing.assert_allclose(found.centres[:, 0], [1, distance + 1], rtol=1e-6)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize("constant", [5.0, 0.0, -1e6])
def test_the_likelihood_never_falls_beside_a_constant_column(covariance, constant):
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(200, 2)), np.full((200, 1), constant)], axis=1)
    x[:100, :2] += 3
    history = [one.objective for one in gmm(x, 3, covariance=covariance, seed=1).history]
    assert np.diff(history).min() > -1e-9 * abs(history[-1])
    assert len(history) > 3
