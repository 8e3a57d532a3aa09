"""adversarial: gradients by hand, images that stay in range, and a tiny run."""

import json
from pathlib import Path

import numpy as np
import pytest

from minicaps import ops
from minicaps.backend import choose_device
from minicaps.data import Split
from minicaps.experiments import __main__ as command
from minicaps.experiments import adversarial
from minicaps.experiments.lab import Lab
from minicaps.nn import Module
from minicaps.routing import Routed
from minicaps.tensor import Tensor

LAB = Lab(Path("runs"), True, choose_device("cpu"), None, stop=False)


class Linear(Module):
    """A score and its negative, each linear in the two pixels of the image."""

    config, logits = {"name": "dense-cnn"}, True  # which selects the loss

    def __init__(self):
        self.slope = Tensor(np.array([[1, -1], [-2, 2]], np.float32), requires_grad=True)

    def forward(self, images):
        return Routed(None, images.reshape(len(images), 2) @ self.slope, None)


def two():
    images = np.array([[0.5, 0.5], [0.9, 0.02]], np.float32).reshape(2, 1, 1, 2)
    return Split(images, np.array([0, 1]))


def test_gradients_of_a_linear_network_by_hand():
    difference = adversarial.gradients(LAB, Linear(), two(), "difference")
    # for class 0: s₁ − s₀ = −2x + 4y; for class 1, its negative
    np.testing.assert_allclose(difference[:, 0, 0], [[-2, 4], [2, -4]])
    loss = adversarial.gradients(LAB, Linear(), two(), "loss")
    # cross-entropy, mean of 2: the gradient of the difference times σ(difference) / 2
    gap = np.array([[1.0], [2 * 0.9 - 4 * 0.02]])
    np.testing.assert_allclose(loss[:, 0, 0], difference[:, 0, 0] / (1 + np.exp(-gap)) / 2, 1e-5)


def test_pictures_move_by_the_sign_and_stay_in_range():
    made = adversarial.pictures(LAB, Linear(), two(), "difference")
    assert len(made) == len(adversarial.STRENGTHS) == 5
    np.testing.assert_allclose(made[1].images[:, 0, 0], [[0.4, 0.6], [1.0, 0.0]], atol=1e-7)
    iterated = adversarial.pictures(LAB, Linear(), two(), "iterated")  # the gradient is the same
    for once, often in zip(made, iterated, strict=True):
        np.testing.assert_allclose(once.images, often.images, atol=1e-6)
        assert once.images.dtype == np.float32 and np.array_equal(once.labels, two().labels)


def test_noise_changes_each_pixel_as_much():
    gray = Split(np.full((9, 1, 4, 4), 0.5, np.float32), np.zeros(9, int))
    for strength, made in zip(
        adversarial.STRENGTHS, adversarial.pictures(LAB, Linear(), gray, "noise"), strict=True
    ):
        np.testing.assert_allclose(abs(made.images - 0.5), strength, atol=1e-6)
        assert abs((made.images > 0.5).mean() - 0.5) < 0.2


def test_the_difference_takes_the_best_wrong_score():
    scores = Tensor(np.array([[0.9, 0.2, 0.5], [0.1, 0.3, 0.8]]), requires_grad=True)
    found = adversarial.difference(scores, np.array([0, 1]))
    assert found.item() == pytest.approx((0.5 - 0.9) + (0.8 - 0.3))
    found.backward()
    np.testing.assert_array_equal(scores.grad, [[-1, 0, 1], [0, -1, 1]])


class Sure(Linear):
    """Lengths that satisfy the margin loss for the first image only."""

    config, logits = {"name": "capsnet"}, False

    def forward(self, images):
        x = images.reshape(len(images), 2)
        return Routed(None, 0.05 + ops.abs(x) * Tensor(np.array([1.0, 0.1], np.float32)), None)


def test_a_satisfied_margin_loss_is_flat_and_the_difference_is_not():
    images = np.array([[0.95, 0.2], [0.5, 0.5]], np.float32).reshape(2, 1, 1, 2)
    split = Split(images, np.array([0, 0]))
    assert adversarial.flat(LAB, Sure(), split) == {"loss": 0.5, "difference": 0.0}
    still = adversarial.pictures(LAB, Sure(), split, "loss")[-1].images
    assert np.array_equal(still[0], images[0]) and not np.array_equal(still[1], images[1])


@pytest.mark.slow
def test_both_networks_are_attacked_and_drawn(monkeypatch, capsys):
    whole = adversarial.parts(True)
    own = {"data": "strokes", "validation": 10, "epochs": 2, "batch_size": 8, "shift": 0}
    monkeypatch.setattr(adversarial, "DATA", "strokes")
    monkeypatch.setattr(
        adversarial, "parts", lambda quick: {part: was | own for part, was in whole.items()}
    )
    assert command.main(["adversarial", "--quick", "--device", "cpu"]) == 0
    folder = Path("runs/experiments/adversarial-quick")
    found = json.loads((folder / "adversarial/seed-0.json").read_text())
    for entry in found.values():
        figures = entry["figures"]
        assert figures["against"].keys() == set(adversarial.ATTACKS)
        assert {len(curve) for curve in figures["against"].values()} == {5}
        assert figures["flat"]["difference"] <= figures["flat"]["loss"]
    report = json.loads((folder / "adversarial.json").read_text())
    assert len(report["table"]) == 1 + 2 * len(adversarial.ATTACKS)
    assert "iterated" in capsys.readouterr().out
    assert (folder / "adversarial.png").stat().st_size > 10_000
