"""attacks: gradients by hand, and images that stay in range."""

from pathlib import Path

import numpy as np
import pytest
from two_pixels import LAB, Linear, two

from minicaps import ops
from minicaps.backend import choose_device
from minicaps.data import Split
from minicaps.errors import Interrupted
from minicaps.experiments import attacks
from minicaps.experiments.lab import Lab
from minicaps.gradcheck import check_gradients
from minicaps.nn import Module
from minicaps.routing import Routed
from minicaps.tensor import Tensor


def test_gradients_of_a_linear_network_by_hand():
    difference, right = attacks.gradients(LAB, Linear(), two(), "difference")
    # for class 0: s₁ − s₀ = −2x + 4y; for class 1, its negative
    np.testing.assert_allclose(difference[:, 0, 0], [[-2, 4], [2, -4]])
    assert right.tolist() == [False, False]
    loss, _ = attacks.gradients(LAB, Linear(), two(), "loss")
    # cross-entropy, mean of 2: the gradient of the difference times σ(difference) / 2
    gap = np.array([[1.0], [2 * 0.9 - 4 * 0.02]])
    np.testing.assert_allclose(loss[:, 0, 0], difference[:, 0, 0] / (1 + np.exp(-gap)) / 2, 1e-5)


def test_pictures_move_by_the_sign_and_stay_in_range():
    made = attacks.pictures(LAB, Linear(), two(), "difference")
    assert len(made) == len(attacks.STRENGTHS) == 5
    np.testing.assert_allclose(made[1].images[:, 0, 0], [[0.4, 0.6], [1.0, 0.0]], atol=1e-7)
    iterated = attacks.pictures(LAB, Linear(), two(), "iterated")  # the gradient is the same
    for once, often in zip(made, iterated, strict=True):
        np.testing.assert_allclose(once.images, often.images, atol=1e-6)
        assert once.images.dtype == np.float32 and np.array_equal(once.labels, two().labels)


def test_noise_changes_each_pixel_as_much():
    gray = Split(np.full((9, 1, 4, 4), 0.5, np.float32), np.zeros(9, int))
    for strength, made in zip(
        attacks.STRENGTHS, attacks.pictures(LAB, Linear(), gray, "noise"), strict=True
    ):
        np.testing.assert_allclose(abs(made.images - 0.5), strength, atol=1e-6)
        assert abs((made.images > 0.5).mean() - 0.5) < 0.2


def test_the_difference_takes_the_best_wrong_score():
    scores = Tensor(np.array([[0.9, 0.2, 0.5], [0.1, 0.3, 0.8]]), requires_grad=True)
    found = attacks.difference(scores, np.array([0, 1]))
    assert found.item() == pytest.approx((0.5 - 0.9) + (0.8 - 0.3))
    found.backward()
    np.testing.assert_array_equal(scores.grad, [[-1, 0, 1], [0, -1, 1]])


def test_parameters_get_no_gradient_and_stay_parameters():
    network = Linear()
    attacks.gradients(LAB, network, two(), "difference")
    assert network.slope.grad is None and network.parameters() == [network.slope]
    network(Tensor(two().images)).activations.sum().backward()
    assert network.slope.grad is not None


def test_restarts_find_the_corner_of_a_linear_network():
    """s₁ − s₀ = −2x + 4y: the corner (x − ε, y + ε) misleads the first image from ε = 0.15 on."""
    images = np.array([[0.9, 0.29], [0.9, 0.02]], np.float32).reshape(2, 1, 1, 2)
    made = attacks.pictures(LAB, Linear(), Split(images, np.array([0, 0])), "restarts")
    corners = np.array([[0.9 - e, 0.29 + e] for e in attacks.STRENGTHS])
    still = -2 * corners[:, 0] + 4 * corners[:, 1] < 0
    assert still.tolist() == [True, True, False, False, False]
    for one, corner in zip(made, corners[still], strict=False):
        np.testing.assert_allclose(one.images[0, 0, 0], corner, atol=1e-6)
    for one, corner in zip(made, attacks.STRENGTHS, strict=True):
        np.testing.assert_allclose(one.images[1, 0, 0], [0.9 - corner, 0.02 + corner], atol=1e-6)
        assert one.images.dtype == np.float32 and one.labels.tolist() == [0, 0]


def test_a_misled_image_is_kept_and_not_attacked_again(monkeypatch):
    shown = []

    class Counting(Linear):
        def forward(self, images):
            shown.append(images.data[:, 0, 0].copy())
            return super().forward(images)

    images = np.array([[0.5, 0.24], [0.9, 0.02]], np.float32).reshape(2, 1, 1, 2)
    made = attacks.restarts(LAB, Counting(), Split(images, np.array([0, 0])), 2, 10)
    # the first is misled once −2 (0.5 − d) + 4 (0.24 + d) > 0, in the first step of 0.0125
    for one in made:
        np.testing.assert_allclose(one.images[0, 0, 0], [0.4875, 0.2525], atol=1e-6)
    assert [len(batch) for batch in shown[:3]] == [2, 2, 1]
    assert {len(batch) for batch in shown[3:]} == {1}
    assert len(shown) == len(attacks.STRENGTHS) * 2 * (10 + 1)
    shown.clear()
    attacks.restarts(LAB, Counting(), Split(images[:1], np.array([1])), 5, 100)
    assert len(shown) == 1  # it was misclassified before any attack


class Flat(Linear):
    """A wrong score that rises from 0.55 on and is the highest from 0.62 on; the other is 0.14."""

    def forward(self, images):
        wrong = 2 * ops.relu(images.reshape(len(images), 1) - 0.55)
        return Routed(None, ops.concatenate([0 * wrong + 0.14, wrong], axis=1), None)


def test_a_random_start_leaves_a_flat_region():
    split = Split(np.full((4, 1, 1, 1), 0.5, np.float32), np.zeros(4, int))
    single = attacks.restarts(LAB, Flat(), split, 1, 10)
    assert all(np.array_equal(made.images, split.images) for made in single)
    several = attacks.restarts(LAB, Flat(), split, 5, 10)
    rights = [LAB.accuracy(Flat(), made) for made in several]
    assert rights[0] == rights[1] == 1 and rights[-1] == 0  # 0.62 is out of reach for ε ≤ 0.1


class Noisy(Module):
    """Scores whose gradient has another sign at each step, and never mislead."""

    loss, logits = "cross-entropy", True

    def __init__(self):
        self.rng = np.random.default_rng(0)
        self.slope = Tensor(np.ones(1, np.float32), requires_grad=True)

    def forward(self, images):
        x = images.reshape(len(images), images.size // len(images))
        signs = self.rng.choice([-1.0, 1.0], (x.shape[1], 1)).astype(np.float32)
        wrong = (x * self.slope) @ Tensor(signs)
        return Routed(None, ops.concatenate([wrong * 0 + 1e4, wrong], axis=1), None)


def test_restarts_stay_in_the_ball_and_in_range_and_are_reproducible():
    images = np.random.default_rng(0).choice([0, 0.02, 0.5, 1], (6, 1, 4, 4)).astype(np.float32)
    split = Split(images, np.zeros(6, int))
    made, again = (attacks.pictures(LAB, Noisy(), split, "restarts") for _ in range(2))
    for strength, one, other in zip(attacks.STRENGTHS, made, again, strict=True):
        assert abs(one.images - images).max() <= strength + 1e-6
        assert abs(one.images - images).max() > strength / 2
        assert one.images.min() >= 0 and one.images.max() <= 1
        assert np.array_equal(one.images, other.images)
    assert split.images is images and abs(made[0].images - made[1].images).max() > 0


def test_a_stop_ends_the_attack_within_a_step():
    class Stopping(Linear):
        calls = 0

        def forward(self, images):
            self.calls += 1
            return super().forward(images)

    class Stop:
        def __bool__(self):
            return network.calls == 3

    network, split = Stopping(), two()
    lab = Lab(Path("runs"), False, choose_device("cpu"), None, Stop())
    with pytest.raises(Interrupted):
        attacks.pictures(lab, network, Split(split.images, np.array([0, 0])), "restarts")
    assert network.calls == 3 and network.slope.requires_grad


def test_before_the_squash_by_hand_and_by_finite_differences():
    n = np.array([1e-3, 0.1, 0.5, 1, 3, 20, 300])
    lengths = Tensor(n**2 / (1 + n**2))
    np.testing.assert_allclose(attacks.before_squash(lengths).data, n, rtol=1e-9)
    near = np.array([1e-4, 0.1, 0.5, 0.9, 0.9999])
    check_gradients(attacks.before_squash, near, step=1e-8)
    single = np.array([0, 1e-30, 1e-6, 0.5, 1 - 2**-24, 1, 1.0000001], np.float32)
    ends = Tensor(single, requires_grad=True)
    found = attacks.before_squash(ends)
    assert found.dtype == np.float32 and (np.diff(found.data) >= 0).all()
    found.sum().backward()
    assert np.isfinite(found.data).all() and np.isfinite(ends.grad).all() and ends.grad[3] > 0


class Long(Linear):
    """Lengths of capsules whose lengths before the squash are 40 (x − 0.3) and 1 + x."""

    loss, logits = "margin", False

    def forward(self, images):
        x = images.reshape(len(images), 1)
        n = ops.concatenate([ops.maximum(40 * (x - 0.3), 0.0), 1 + x], axis=1)
        return Routed(None, n * n / (1 + n * n), None)


def test_a_long_capsule_resists_the_difference_and_not_restarts():
    """At x = 0.5, the lengths' slopes are 0.15 and 0.28, those before the squash 40 and 1."""
    split = Split(np.full((1, 1, 1, 1), 0.5, np.float32), np.array([0]))
    for attack in ("difference", "iterated"):
        last = attacks.pictures(LAB, Long(), split, attack)[-1]
        assert last.images.item() == pytest.approx(0.75) and LAB.accuracy(Long(), last) == 1
    last = attacks.restarts(LAB, Long(), split, 1, 10)[-1]  # without a random start
    assert last.images.item() < 0.35 and LAB.accuracy(Long(), last) == 0
