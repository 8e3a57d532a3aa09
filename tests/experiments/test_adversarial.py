"""adversarial: what counts as correct under attack, and a tiny run."""

import json
from pathlib import Path

import numpy as np
import pytest
from two_pixels import LAB, Linear

from minicaps import ops
from minicaps.data import Split
from minicaps.experiments import __main__ as command
from minicaps.experiments import adversarial, attacks
from minicaps.routing import Routed
from minicaps.tensor import Tensor


def test_the_strongest_attack_is_chosen_at_each_strength():
    one = [[True, True, True], [False, True, False]]
    other = [[False, True, True], [True, True, False]]
    found = adversarial.strongest([np.array(one), np.array(other)])
    assert found.tolist() == [[False, True, True], [False, True, False]]


def test_an_attack_with_another_network_is_judged_by_the_attacked_one():
    """The other network's gradient has the opposite sign, so its images help the first."""
    other = Linear()
    other.slope.data = -other.slope.data
    images = np.array([[0.5, 0.24]], np.float32).reshape(1, 1, 1, 2)
    split, model = Split(images, np.array([0])), Linear()
    assert not adversarial.attacked(LAB, model, model, split, "difference").any()
    helped = adversarial.attacked(LAB, model, other, split, "difference")
    assert helped.shape == (5, 1) and helped.all()


def test_worst_is_correct_only_under_every_attack_up_to_the_strength():
    one = [[True, True, False, True], [True, True, False, True]]
    other = [[True, False, True, True], [True, True, True, False]]
    worst = adversarial.worst([np.array(one), np.array(other)])
    assert worst.tolist() == [[True, False, False, True], [True, False, False, False]]


class Sure(Linear):
    """Lengths that satisfy the margin loss for the first image only."""

    loss, logits = "margin", False

    def forward(self, images):
        x = images.reshape(len(images), 2)
        return Routed(None, 0.05 + ops.abs(x) * Tensor(np.array([1.0, 0.1], np.float32)), None)


def test_a_satisfied_margin_loss_is_flat_and_the_difference_is_not():
    images = np.array([[0.95, 0.2], [0.5, 0.5]], np.float32).reshape(2, 1, 1, 2)
    split = Split(images, np.array([0, 0]))
    assert adversarial.flat(LAB, Sure(), split) == {"loss": 0.5, "difference": 0.0}
    still = attacks.pictures(LAB, Sure(), split, "loss")[-1].images
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
        against = figures["against"]
        assert against.keys() == {*adversarial.ATTACKS, "worst"}
        assert {len(curve) for curve in against.values()} == {5}
        assert all(w <= min(a) for w, *a in zip(against["worst"], *against.values(), strict=True))
        assert against["worst"] == sorted(against["worst"], reverse=True)
        assert against["restarts"] == sorted(against["restarts"], reverse=True)
        wrong = round(figures["tested"] * (1 - against["worst"][1]))
        assert len(figures["wrong"].split()) == wrong
        assert 0 <= figures["validation"] <= 1
        assert figures["flat"]["difference"] <= figures["flat"]["loss"]
    report = json.loads((folder / "adversarial.json").read_text())
    assert len(report["table"]) == 1 + 2 * (len(adversarial.ATTACKS) + 1)
    assert "restarts" in capsys.readouterr().out
    assert (folder / "adversarial.png").stat().st_size > 10_000
