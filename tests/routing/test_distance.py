"""Distance routing: the formula, by hand and by loops, and its relation to soft K-means.

The guarantees of all routings are tested in test_agreement.py.
"""

import numpy as np
import pytest
from routing_checks import VOTES_IN_WINDOWS, WINDOWS, couple_one_by_one, squashed
from tensors import draw

from minicaps import Tensor
from minicaps.clustering import soft_kmeans
from minicaps.routing import distance, distance_plain, keep_history

both = pytest.mark.parametrize("route", [distance, distance_plain])


def route_one_by_one(votes, iterations, λ, windows=None):
    """Route votes (rows, I, J, D) with loops over children and parents; returns v and ψ."""
    logits = np.zeros(votes.shape[:3])
    for _ in range(iterations):
        ψ = couple_one_by_one(logits, windows=windows)
        m = np.zeros((votes.shape[0], *votes.shape[2:]))
        for n, i, j in np.ndindex(ψ.shape):
            m[n, j] += ψ[n, i, j] / ψ[n, :, j].sum() * votes[n, i, j]
        for n, i, j in np.ndindex(ψ.shape):
            logits[n, i, j] = -λ * ((votes[n, i, j] - m[n, j]) ** 2).sum()
    return np.array([[squashed(x) for x in row] for row in m]), ψ


@both
@pytest.mark.parametrize("windows", [None, WINDOWS], ids=["dense", "in windows"])
@pytest.mark.parametrize("iterations", [1, 2, 3, 5])
def test_it_is_its_formula(route, iterations, windows):
    votes, λ = draw(*VOTES_IN_WINDOWS), 1 if iterations == 1 else 0.7
    v, ψ = route_one_by_one(votes, iterations, λ, windows)
    routed = route(Tensor(votes), iterations=iterations, inverse_temperature=λ, windows=windows)
    np.testing.assert_allclose(routed.poses.data, v, rtol=1e-11)
    np.testing.assert_allclose(routed.couplings.data, ψ, rtol=1e-11)
    np.testing.assert_allclose(routed.activations.data, np.linalg.norm(v, axis=2), rtol=1e-11)


@both
def test_two_children_by_hand(route):
    """Votes 0 and 1 for A, 0 and 3 for B: they are ½, ½ and 1½, 1½ from the means ½ and 1½."""
    votes = np.array([[0.0, 0.0], [1.0, 3.0]])[None, :, :, None]
    routed = route(Tensor(votes), iterations=2, squash="none")
    to_b = 1 / (1 + np.exp(1.5**2 - 0.5**2))  # 1/(1 + e²)
    np.testing.assert_allclose(routed.couplings.data[0], [[1 - to_b, to_b]] * 2)
    np.testing.assert_allclose(routed.poses.data[0, :, 0], [0.5, 1.5])
    np.testing.assert_allclose(routed.activations.data[0], [0.5, 1.5])


@both
def test_with_shared_votes_it_is_soft_k_means(route):
    """If parents differ only in their means, the E and M steps are the same."""
    x, λ = draw(12, 3), 0.8
    offset = draw(2, 3, seed=1)  # of the votes for each parent, so that the means differ
    votes = x[None, :, None] + offset
    m = (votes[0].mean(axis=0) - offset)[[0, 1]]
    options = {"iterations": 6, "inverse_temperature": λ, "squash": "none"}
    with keep_history():
        history = route(Tensor(votes), **options).history
    clusters = soft_kmeans(x, 2, inverse_temperature=λ, start=m, iterations=5)
    assert np.ptp(history[1].couplings.data) < 1e-12  # with equal starts, they never separate
    np.testing.assert_allclose(clusters.responsibilities, history[-1].couplings.data[0])
    np.testing.assert_allclose(history[-1].poses.data[0] - offset, clusters.centres)


@both
def test_a_mean_does_not_grow_with_its_members(route):
    votes = draw(1, 4, 3, 2)
    few, many = (route(Tensor(np.repeat(votes, n, axis=1))) for n in (1, 10))
    np.testing.assert_allclose(few.poses.data, many.poses.data, rtol=1e-11)


@both
def test_moving_all_votes_moves_the_means(route):
    votes, options = draw(2, 5, 3, 4), {"squash": "none", "iterations": 4}
    here, there = (route(Tensor(votes + shift), **options) for shift in (0, 100.0))
    np.testing.assert_allclose(there.poses.data, here.poses.data + 100, rtol=1e-12)
    np.testing.assert_allclose(there.couplings.data, here.couplings.data, rtol=1e-9)


@both
def test_one_child_is_the_mean_of_its_votes(route):
    votes = draw(2, 1, 3, 4)
    routed = route(Tensor(votes), squash="none")
    np.testing.assert_allclose(routed.poses.data, votes[:, 0], rtol=1e-12)
    np.testing.assert_allclose(routed.couplings.data, 1 / 3, rtol=1e-12)


@both
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_parent_that_nobody_is_near_has_mean_zero_and_no_gradient(route, dtype):
    """The votes for A agree, but those for B are 200 apart, so all children go to A."""
    votes = np.zeros((1, 2, 2, 1), dtype)
    votes[0, :, 0, 0], votes[0, :, 1, 0] = (3, 3), (-100, 100)
    tensor = Tensor(votes, requires_grad=True)
    routed = route(tensor, squash="none")
    routed.poses.backward(np.ones((1, 2, 1), dtype))
    np.testing.assert_array_equal(routed.couplings.data[0], [[1, 0], [1, 0]])
    np.testing.assert_array_equal(routed.poses.data[0], [[3], [0]])
    np.testing.assert_allclose(tensor.grad[0, :, :, 0], [[0.5, 0], [0.5, 0]])
