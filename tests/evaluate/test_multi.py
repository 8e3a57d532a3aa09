"""Test multi-label evaluation against counts computed by hand and by scikit-learn."""

import csv
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from evaluations import measured, refusal
from sklearn.metrics import accuracy_score, precision_recall_fscore_support
from thinning import thinned
from tiny_runs import run, summary

from minicaps import plotting
from minicaps.data import Split
from minicaps.evaluate.report import Evaluation, report, report_classes, worst_of_several
from minicaps.plotting.members import members as drawn_really

NAMES = ("cup", "spoon", "plate")
FILES = ["classes.csv", "evaluation.json", "predictions.csv", "worst.png"]


@pytest.fixture(autouse=True)
def undrawn(monkeypatch, tiny):
    """Write an empty file instead of drawing."""
    monkeypatch.setattr(plotting, "members", lambda *given, **_: Path(given[-1]).touch())


def a_network(logits=False):
    score = "logit" if logits else "length"
    return SimpleNamespace(
        logits=logits, loss="margin", raw_score=score, class_names=NAMES, multi=True
    )


def split_of(labels):
    return Split(np.zeros((len(labels), 1, 2, 2), np.float32), np.asarray(labels, np.uint8))


def test_sets_and_largest_by_hand():
    labels = [[1, 0, 1], [1, 0, 0], [0, 1, 1], [0, 0, 0], [0, 0, 0]]
    activations = np.array(
        [
            [0.9, 0.1, 0.6],  # both correct
            [0.4, 0.2, 0.1],  # the largest is correct, but below the threshold
            [0.8, 0.7, 0.6],  # one class too many, and the largest two are wrong
            [0.1, 0.1, 0.1],  # no class present, none predicted
            [0.1, 0.6, 0.1],
        ]
    )
    found = Evaluation(a_network(), split_of(labels), activations).measure()
    assert (found["samples"], found["right"], found["wrong"]) == (5, 2, 3)
    assert (found["top_samples"], found["top_right"]) == (3, 2)
    assert found["accuracy_interval_95"] == pytest.approx((0.1176, 0.7693), abs=1e-4)
    # hinges: 0.3², 0.5² + 0.5·0.1², 0.2² + 0.3² + 0.5·0.7², 0, 0.5·0.5²
    assert found["loss"] == pytest.approx((0.09 + 0.255 + 0.375 + 0 + 0.125) / 5)
    assert found["by_number"] == [
        {"present": 0, "pictures": 2, "right": 1},
        {"present": 1, "pictures": 1, "right": 0},
        {"present": 2, "pictures": 2, "right": 1},
    ]
    plate = found["classes"][2]
    assert (plate["pictures"], plate["answered"], plate["right"]) == (2, 2, 2)


@pytest.mark.parametrize("logits", [False, True])
def test_rates_are_those_of_scikit_learn(logits):
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, (200, 3))
    activations = np.clip(labels * 0.3 + random.random((200, 3)) * 0.7, 0, 1)
    scores = activations - 0.5 if logits else activations
    found = Evaluation(a_network(logits), split_of(labels), scores).measure()
    said = f"those whose {'logit is above 0' if logits else 'length is above 0.5'}"
    assert report(found)[0].endswith(said)
    answers = (activations > 0.5).astype(int)
    assert found["accuracy"] == accuracy_score(labels, answers)
    expected = precision_recall_fscore_support(labels, answers)
    for k, row in enumerate(found["classes"]):
        rates = (row["precision"], row["recall"], row["f1"], row["pictures"])
        assert rates == pytest.approx([column[k] for column in expected])


def test_one_class_in_each_picture_is_a_case_of_it():
    images = np.zeros((2, 1, 2, 2), np.float32)
    activations = np.array([[0.1, 0.2, 0.8], [0.9, 0.8, 0.1]])
    found = Evaluation(a_network(), Split(images, np.array([2, 0])), activations).measure()
    assert (found["right"], found["top_right"], found["top_samples"]) == (1, 2, 2)


def test_a_class_without_pictures_has_no_rate():
    row = Evaluation(a_network(), split_of([[1, 0, 0]]), np.array([[0.9, 0, 0]])).measure()
    assert row["classes"][1]["recall"] is None and row["classes"][1]["precision"] is None
    assert report_classes(row)


def test_the_worst_come_first():
    labels = [[1, 0, 0], [1, 0, 0], [0, 0, 0], [1, 0, 0]]
    activations = np.array([[0.9, 0.1, 0.1], [0.3, 0.1, 0.1], [0.1, 0.9, 0.1], [0.55, 0.2, 0.2]])
    found = Evaluation(a_network(), split_of(labels), activations)
    _, drawn, worst, answers, names = worst_of_several(found, NAMES, 3)
    assert drawn is None and names == NAMES
    assert worst.tolist() == [[0, 0, 0], [1, 0, 0], [1, 0, 0]]
    assert answers.tolist() == [[False, True, False], [False] * 3, [True, False, False]]


# ---- the command


@pytest.mark.parametrize("part", thinned(["test", "validation", "train"]))
def test_a_run_on_composed_pictures(part):
    folder = run("--compose", "2", "--layout", "below")
    found = measured(folder, "--part", part)
    expected = {"test": 30, "validation": 4, "train": 36}[part]
    assert found["samples"] == found["top_samples"] == expected
    assert [row["present"] for row in found["by_number"]] == [2]
    results = folder / ("evaluation" if part == "test" else f"evaluation-{part}")
    assert sorted(path.name for path in results.iterdir()) == FILES
    with open(results / "predictions.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    seen = [[k for k in "0123456789" if float(row[k]) > 0.5] for row in rows]
    assert [" + ".join(answer) for answer in seen] == [row["answer"] for row in rows]
    assert sum(row["answer"] == row["classes"] for row in rows) == found["right"]


@pytest.mark.slow
def test_the_worst_answers_are_drawn(monkeypatch):
    folder = run("--compose", "2")
    monkeypatch.setattr(plotting, "members", drawn_really)
    measured(folder)
    assert (folder / "evaluation/worst.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_test_figures_are_those_of_the_training(capsys):
    folder = run("--compose", "3")
    capsys.readouterr()
    found, trained = measured(folder), summary(folder)
    assert (found["right"], found["samples"]) == (trained["test_right"], trained["test_samples"])
    assert found["loss"] == pytest.approx(trained["test_loss"], rel=1e-5)
    said = capsys.readouterr().out
    assert "Note: each image is composed of 3 images of different classes (overlap)" in said
    assert "Top k correct" in said and "images with 3 classes" in said


def save(path, n=40, names=NAMES[:2], columns=2):
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, (n, columns))
    np.savez(path, images=random.random((n, 20, 20)), labels=labels, class_names=names)
    return str(path)


def test_pictures_of_ones_own_and_others(tmp_path, capsys):
    folder = run("--data", save(tmp_path / "x.npz"), "--limit", "30")
    assert measured(folder)["samples"] == 8
    assert measured(folder, "--data", save(tmp_path / "y.npz", 7), out="y")["samples"] == 7
    turned = save(tmp_path / "z.npz", 7, names=("spoon", "cup"))
    mine, theirs = measured(folder, "--data", turned, out="z"), measured(
        folder, "--data", str(tmp_path / "y.npz"), out="y"
    )  # fmt: skip
    assert [row["pictures"] for row in mine["classes"]] == [
        row["pictures"] for row in theirs["classes"]
    ][::-1]
    save(tmp_path / "fork.npz", 7, names=("cup", "fork"))
    assert "'fork'" in refusal(capsys, folder, "--data", tmp_path / "fork.npz")
    np.savez(tmp_path / "wide.npz", images=np.ones((3, 20, 20)), labels=np.eye(3))
    assert "3 columns, but the network knows 2" in refusal(
        capsys, folder, "--data", tmp_path / "wide.npz"
    )


def test_a_network_for_one_class_is_measured_on_several(tmp_path):
    arrays = {"images": np.random.default_rng(0).random((30, 20, 20))}
    np.savez(tmp_path / "one.npz", labels=np.arange(30) % 2, class_names=NAMES[:2], **arrays)
    folder = run("--data", str(tmp_path / "one.npz"), "--limit", "24")
    found = measured(folder, "--data", save(tmp_path / "y.npz", 7), out="y")
    assert found["samples"] == 7 and "top_right" in found


def test_composed_pictures_of_ones_own(tmp_path, capsys):
    labels, images = np.arange(60) % 2, np.random.default_rng(0).random((60, 20, 20))
    np.savez(tmp_path / "x.npz", images=images, labels=labels)
    folder = run("--data", str(tmp_path / "x.npz"), "--limit", "30", "--compose", "2")
    assert measured(folder)["samples"] == 12
    np.savez(tmp_path / "x.npz", images=images[:50], labels=labels[:50])
    assert "restore them" in refusal(capsys, folder)


@pytest.mark.slow
def test_pictures_of_the_worst_are_drawn(tmp_path, monkeypatch):
    monkeypatch.undo()
    labels = np.array([[1, 1, 0], [0, 0, 0]])
    for drawn in (None, np.random.default_rng(0).random((2, 2, 1, 5, 5))):
        images = np.random.default_rng(1).random((2, 1, 5, 5))
        path = tmp_path / "x.png"
        plotting.members(images, drawn, labels, labels > 0, ("$a", "b" * 40, "c"), path)
        assert path.stat().st_size > 5000
