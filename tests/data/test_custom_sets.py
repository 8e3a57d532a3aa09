"""The sets by which custom data is judged are what they say, and not easier."""

import json
import subprocess
import sys
from collections import Counter

import custom_sets
import numpy as np
import pytest

from minicaps.data import load

COUNTS = {
    "letters": dict.fromkeys(custom_sets.LETTERS, 60),
    "shapes": dict.fromkeys(("circle", "square", "star", "triangle"), 120),
    "few": {str(k): 20 for k in range(10)},
    "imbalanced": {"3": 300, "5": 40, "8": 12},
}


@pytest.mark.parametrize(
    "name", [pytest.param("letters", marks=pytest.mark.slow), "shapes", "few", "imbalanced"]
)
def test_a_set_has_its_images(name, tmp_path):
    path = custom_sets.make(name, tmp_path)
    assert Counter(file.parent.name for file in path.rglob("*.png")) == COUNTS[name]
    data = load(str(path), size="auto")
    assert data.train.shape[1:] == (28, 28)
    assert (data.train.images.max(axis=(1, 2, 3)) > 0.5).mean() > 0.95  # ink or ground is visible


def test_the_gray_digits_have_their_own_white(tmp_path):
    with np.load(custom_sets.make("gray", tmp_path)) as arrays:
        assert (arrays["images"].shape, arrays["images"].max()) == ((1797, 8, 8), 16)
    data = load(str(tmp_path / "gray/digits.npz"))
    assert (data.train.images.min(), data.train.images.max(), data.train.scale) == (0, 1, (0, 16))
    assert any("pixels 0 to 16, divided by 16" in note for note in data.notes)


def test_the_baseline_measures_accuracy_and_balanced_accuracy(tmp_path):
    """Three classes of 300, 40 and 12: the largest alone is right in 86% of the images."""
    data = load(str(custom_sets.make("imbalanced", tmp_path)))
    accuracy, balanced = custom_sets.baseline(data)
    assert 0.8 < accuracy < 0.95
    assert 1 / 3 < balanced < 0.75


# ---- training, which has to be better than a linear classifier

STILL = ["--shift", "0", "--rotate", "0", "--zoom", "0"]


def trained(name, folder, *arguments, out):
    """Train on a set; return the summary."""
    command = [sys.executable, "-m", "minicaps.train", "--data", str(folder / name), "--quiet"]
    subprocess.run([*command, *arguments, "--out", str(folder / out)], check=True)
    return json.loads((folder / out / "summary.json").read_text())


@pytest.mark.slow
def test_what_is_advised_after_poor_training_helps(tmp_path):
    custom_sets.make("imbalanced", tmp_path)
    poor = [*STILL, "--balance", "no", "--epochs", "2", "--batch-size", "64"]
    before = trained("imbalanced", tmp_path, *poor, out="poor")
    assert (
        "add --shift 2, add --balance, leave --epochs and --batch-size out"
        in before["warnings"][-1]
    )
    better = [*STILL[2:], "--shift", "2", "--balance"]
    after = trained("imbalanced", tmp_path, *better, out="better")
    assert not any("linear classifier" in text for text in after["warnings"])
    assert after["test_balanced_accuracy"] > before["test_balanced_accuracy"] + 0.3


@pytest.mark.slow
def test_a_learning_rate_that_kills_the_network_is_lowered_until_it_learns(tmp_path):
    custom_sets.make("imbalanced", tmp_path)
    high = ["--learning-rate", "0.5", "--restarts", "4"]
    found = trained("imbalanced", tmp_path, *high, out="high")
    assert found["options"]["learning_rate"] < 0.5
    assert any("Restarting with learning rate 0.125" in text for text in found["warnings"])
    assert found["test_balanced_accuracy"] > 0.8
