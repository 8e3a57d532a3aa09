"""Training with balanced classes: `--balance`."""

import csv

import numpy as np
import pytest
from own_files import SIZE, noise
from sklearn.metrics import balanced_accuracy_score
from tiny_runs import TINY, assert_equal_runs, go_on, history, refused, run, saved, summary

from minicaps.backend import choose_device
from minicaps.data.batches import batches
from minicaps.runs.inference import classify
from minicaps.runs.run import open_run
from minicaps.train import trainer
from minicaps.train.options import complete, parsed


@pytest.fixture
def data():
    np.savez("a.npz", images=noise(0, 64, *SIZE), labels=np.repeat([0, 1, 2], (40, 14, 10)))
    return ("--data", "a.npz", "--validation", "12", "--limit", "48", "--balance")


def test_the_best_epoch_is_that_of_the_highest_balanced_accuracy(data):
    folder = run(*data, "--epochs", "4", "--batch-size", "4")
    key = "validation_balanced_accuracy"
    reached = [row[key] for row in history(folder)]
    best = summary(folder)["best_epoch"]
    assert max(reached) == reached[best - 1] == summary(folder)[key]
    with open(folder / "metrics.csv", newline="") as file:
        assert [float(row[key]) for row in csv.DictReader(file)] == pytest.approx(reached)
    opened = open_run(folder, choose_device("cpu"))
    whole = opened.options.data.load(0)
    for split, value in (
        (opened.options.data.split(whole, 0)[1], reached[best - 1]),
        (whole.test, summary(folder)["test_balanced_accuracy"]),
    ):
        answers = classify(opened.model, split).argmax(axis=1)
        assert value == pytest.approx(balanced_accuracy_score(split.labels, answers))


def test_a_balanced_run_resumes_bit_identically(data):
    data = (*data, "--schedule", "constant", "--warm-up", "0")
    whole = run(*data, "--epochs", "2", out="whole")
    parts = run(*data, "--epochs", "1", out="parts")
    go_on(parts, "--epochs", "2")
    assert saved(parts)[1]["options"]["balance"] is True
    assert_equal_runs(parts, whole)


def test_one_validation_image_of_a_class_does_not_choose_the_epoch():
    np.savez("a.npz", images=noise(0, 64, *SIZE), labels=np.repeat([0, 1], (60, 4)))
    folder = run("--data", "a.npz", "--limit", "48", "--balance")
    assert "validation_balanced_accuracy" not in history(folder)[0]


@pytest.mark.parametrize(("arguments", "balance"), [((), True), (("--balance", "no"), False)])
def test_it_is_on_for_imbalanced_data_unless_it_is_off(data, monkeypatch, arguments, balance):
    asked = []

    def watched(*positional, **options):
        asked.append(options["balance"])
        return batches(*positional, **options)

    monkeypatch.setattr(trainer, "batches", watched)
    folder = run(*data[:-1], *arguments)
    assert set(asked) == {balance}
    assert ("validation_balanced_accuracy" in history(folder)[0]) == balance


def test_off_is_not_the_same_as_undecided():
    stored = {"balance": True}, {"balance": False}, {"balance": None}, {}
    read = [parsed(values, None).get("balance") for values in stored]
    assert read == [True, False, None, None] and complete({}).data.balance is None


def test_multi_label_data_cannot_be_balanced(capsys):
    said = refused(capsys, *TINY, "--compose", "2", "--balance", "--out", "two", code=2)
    assert "--balance requires exactly one class per image, but the data is multi-label" in said
