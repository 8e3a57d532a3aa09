"""Tests of what `minicaps.evaluate` counts, writes and prints, for every network."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import matplotlib.image
import numpy as np
import pytest
from commands import said_by
from evaluations import FILES, folder_of, measured, predictions, table
from sklearn.metrics import (
    confusion_matrix,
    precision_recall_fscore_support,
    top_k_accuracy_score,
)
from thinning import thinned
from tiny_runs import edit, run, saved, summary

from minicaps import models
from minicaps.backend import choose_device
from minicaps.data import Split, load
from minicaps.data.batches import batches
from minicaps.evaluate import __main__ as evaluate
from minicaps.evaluate import metrics
from minicaps.evaluate.report import Evaluation, worst_of_one
from minicaps.graph import no_grad
from minicaps.runs.building import load_model
from minicaps.runs.run import open_run
from minicaps.tensor import Tensor

CPU = choose_device("cpu")
DIGITS = list("0123456789")


@pytest.mark.usefixtures("undrawn")
def test_the_test_figures_of_the_training_come_out_again():
    folder = run("--seed", "5")
    found, trained = measured(folder), summary(folder)
    assert (found["right"], found["samples"]) == (trained["test_right"], trained["test_samples"])
    assert found["loss"] == pytest.approx(trained["test_loss"], rel=1e-6)
    assert (found["part"], found["data"], found["loss_name"]) == ("test", "strokes", "margin")


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_counts_are_those_of_an_independent_reference():
    folder = run("--epochs", "3")
    found = measured(folder, "--batch-size", "7")  # the last batch has 2 images
    test = load("strokes").test
    with no_grad():
        model = load_model(folder / "best.npz", CPU).eval()
        lengths = model(Tensor(test.images)).activations.numpy()
    answers = lengths.argmax(axis=1)
    wanted = confusion_matrix(test.labels, answers, labels=range(10))
    assert np.array_equal(found["confusion"], wanted)
    assert found["samples"] == 30 == found["right"] + found["wrong"]
    assert found["right"] == (answers == test.labels).sum()
    assert found["accuracy_interval_95"] == list(metrics.wilson(found["right"], 30))
    rates = precision_recall_fscore_support(
        test.labels, answers, labels=range(10), zero_division=np.nan
    )
    for key, column in zip(("precision", "recall", "f1", "pictures"), rates, strict=True):
        have = [np.nan if row[key] is None else row[key] for row in found["classes"]]
        np.testing.assert_allclose(have, column)
    for k, row in enumerate(found["classes"]):
        assert row["mean_score"] == pytest.approx(lengths[test.labels == k, k].mean(), rel=1e-5)
    rows = table(folder / "evaluation/confusion.csv")
    assert rows[0] == ["class \\ answer", *DIGITS]
    assert [row[0] for row in rows[1:]] == DIGITS
    assert np.array_equal(np.array(rows[1:])[:, 1:].astype(int), wanted)
    rows = table(folder / "evaluation/predictions.csv")
    assert rows[0][:3] == ["picture", "class", "answer"] and len(rows) == 31
    for k, row in enumerate(rows[1:]):
        assert row[:3] == [str(k), str(test.labels[k]), str(answers[k])]
        own = [lengths[k, answers[k]], lengths[k, test.labels[k]], *lengths[k]]
        np.testing.assert_allclose(np.array(row[3:], float), own, rtol=1e-4)


SCORES = {
    "capsnet": "length",
    "capsule-cnn": "length",
    "pooling-cnn": "probability",
    "baseline-cnn": "logit",
    "dense-cnn": "logit",
    "matrix-capsnet": "activation",
}


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", thinned(models.MODELS, ("capsnet", "dense-cnn")))
def test_every_network_is_measured_as_it_was_when_trained(name, request, capsys):
    if name == "baseline-cnn":
        request.getfixturevalue("specks")
    folder = run("--model", name, "--limit", "12")
    found, trained = measured(folder, "--batch-size", "16"), summary(folder)
    assert f"\n{SCORES[name]}: mean for the correct class" in capsys.readouterr().out
    assert (found["right"], found["samples"]) == (trained["test_right"], 30)
    assert found["loss"] == pytest.approx(trained["test_loss"], rel=1e-4)


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_checkpoint_can_be_named_and_its_precision_is_kept(precision):
    folder = run("--epochs", "2", "--precision", precision)
    found = measured(folder / "last.npz", out="elsewhere")
    assert found["checkpoint"] == str(folder / "last.npz")
    opened = open_run(folder / "last.npz", CPU)
    assert evaluate.classify(opened.model, load("strokes").test.take([0]), 5).dtype == precision


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_parts_are_those_of_the_training():
    folder = run("--seed", "2")
    whole = load("strokes", seed=2, limit=40)
    training, validation = whole.cut_validation(0.1, 2)
    for part, split in (("train", training), ("validation", validation)):
        found = measured(folder, "--part", part)
        assert found["samples"] == len(split) and found["part"] == part
        have = predictions(folder / f"evaluation-{part}")
        assert [k for k, _ in have.values()] == [str(k) for k in split.labels]
        for name in have:  # indices in the training data, before validation was split off
            assert whole.train.images[int(name)] in split.images
    row = saved(folder)[1]["progress"]["history"][0]
    assert measured(folder, "--part", "validation")["accuracy"] == row["validation_accuracy"]


def test_what_is_printed_and_written(capsys):
    folder = run("--epochs", "2")
    capsys.readouterr()
    found = measured(folder)
    said = capsys.readouterr().out
    assert sorted(path.name for path in (folder / "evaluation").iterdir()) == FILES
    low, high = found["accuracy_interval_95"]
    right, wrong = found["right"], found["wrong"]
    assert (
        f"Accuracy {right / 30:.2%} ({right} of 30 images), 95% interval {low:.2%} to {high:.2%}"
        f"\nError {wrong / 30:.2%} ({wrong} wrong), margin loss {found['loss']:.4f}\n" in said
    )
    for row in found["classes"]:
        assert re.search(rf"^{row['name']} +{row['pictures']} +{row['right']} +", said, re.M)
    k, j, count = metrics.most_confused(np.array(found["confusion"]), 1)[0]
    assert f"confusions:\n  {k} taken for {j}: {count} of " in said
    never = [row["name"] for row in found["classes"] if row["pictures"] and not row["answered"]]
    assert (f"Never predicted: {', '.join(never)}\n" in said) == bool(never)
    for name in ("confusion.png", "worst.png"):
        assert matplotlib.image.imread(folder / "evaluation" / name).std() > 0.05
    measured(folder, "--quiet")
    assert len(capsys.readouterr().out.splitlines()) == 3


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--reconstruction", "0"]], ids=["decoder", "none"])
def test_the_worst_pictures_are_drawn_from_both_capsules(options):
    folder = run("--epochs", "2", *options)
    opened, test = open_run(folder, CPU), load("strokes").test
    lengths = evaluate.classify(opened.model, test, 250)
    found = Evaluation(opened.model, test, lengths)
    images, drawn, captions, wrong = worst_of_one(found, opened.model.class_names)
    which = metrics.worst(lengths, test.labels, 10)
    assert np.array_equal(images, test.images[which])
    assert np.array_equal(wrong, lengths[which].argmax(axis=1) != test.labels[which])
    rival = metrics.rivals(lengths, test.labels)[0][which]
    for k, (own, other) in enumerate(captions):
        assert own == f"{test.labels[which[k]]}: {lengths[which[k], test.labels[which[k]]]:.2f}"
        assert other == f"{rival[k]}: {lengths[which[k], rival[k]]:.2f}"
    if options:
        assert drawn is None
        return
    with no_grad():
        poses = opened.model(Tensor(images)).poses
        for have, keep in zip(drawn, (rival, test.labels[which]), strict=True):
            wanted = opened.model.reconstruct(poses, keep).numpy()
            np.testing.assert_allclose(have, wanted, atol=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_an_evaluation_takes_the_place_of_an_older_one_only(capsys):
    folder = run()
    measured(folder)
    assert measured(folder, "--part", "validation")["part"] == "validation"
    notes = Path("notes")
    notes.mkdir()
    (notes / "evaluation.json").write_text('{"mine": 1}')
    with pytest.raises(SystemExit) as stopped:
        evaluate.main([str(folder), "--out", "notes"])
    assert stopped.value.code == 2
    assert (
        "notes exists but was not created by an evaluation: choose another --out"
        in capsys.readouterr().err
    )
    assert json.loads((notes / "evaluation.json").read_text()) == {"mine": 1}


@pytest.mark.usefixtures("undrawn")
def test_a_run_that_does_not_name_its_loss_has_that_of_the_model():
    folder = run()
    edit(folder / "best.npz", lambda meta: meta["options"].update(loss=None))
    assert measured(folder)["loss_name"] == "margin"


@pytest.mark.usefixtures("undrawn")
def test_on_the_other_device(strict_cupy, monkeypatch):
    folder = run()
    monkeypatch.setattr(evaluate, "choose_device", lambda _: choose_device("gpu"))
    found = measured(folder)
    assert found["device"] != "CPU (NumPy)"
    assert found["right"] == summary(folder)["test_right"]


def test_help_fits_and_its_example_is_an_option(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as stopped:
        evaluate.main(["--help"])
    said = capsys.readouterr().out
    assert stopped.value.code == 0 and len(said.splitlines()) <= 60
    assert all(len(line) <= 80 for line in said.splitlines())


@pytest.mark.usefixtures("undrawn")
def test_the_example_of_the_help_works(capsys):
    run(out="runs/first")
    said = said_by(capsys, evaluate.main, "--help").out
    example = re.search(r"^ +python -m minicaps.evaluate (runs/.*)$", said, re.MULTILINE)
    assert evaluate.main(example[1].split()) == 0


@pytest.mark.usefixtures("undrawn")
def test_colour_and_batches_of_one(tmp_path):
    data = folder_of(tmp_path / "pets", {"cat": 4, "dog": 5, "eel": 6})
    folder = run("--data", str(data), "--limit", "12")
    found = measured(folder, "--batch-size", "1")
    assert found["samples"] == 3 and [row["name"] for row in found["classes"]] == [
        "cat",
        "dog",
        "eel",
    ]
    split = json.loads((folder / "split.json").read_text())
    assert list(predictions(folder / "evaluation")) == split["test"]
    assert next(batches(load(str(data)).test, 9))[0].shape[1] == 3


# ---- top K


@pytest.mark.usefixtures("undrawn")
def test_the_top_k_accuracy_is_that_of_scikit_learn(capsys):
    folder = run()
    found = measured(folder, "--top", "3")
    rows = table(folder / "evaluation/predictions.csv")
    assert rows[0][5:] == DIGITS
    scores, labels = np.array(rows[1:])[:, 5:].astype(float), [int(row[1]) for row in rows[1:]]
    share = top_k_accuracy_score(labels, scores, k=3, labels=range(10))
    assert found["top"]["accuracy"] == pytest.approx(share)
    low, high = metrics.wilson(right := found["top"]["right"], 30)
    assert found["top"]["interval_95"] == [low, high]
    line = f"Top 3 {share:.2%} ({right} of 30 images), 95% interval {low:.2%} to {high:.2%}\n"
    assert line in capsys.readouterr().out
    assert measured(folder, "--top", "1")["top"]["right"] == found["right"]
    assert "top" not in measured(folder)  # ten classes only


def test_the_top_5_accuracy_is_reported_for_many_classes():
    scores, labels = np.eye(20)[::-1], np.arange(20)
    scores[0, :5] = 2, 3, 4, 5, 6  # the correct class is the fifth
    model = SimpleNamespace(
        multi=False,
        loss="margin",
        logits=False,
        raw_score="length",
        class_names=list(map(str, labels)),
    )
    split = Split(np.zeros((20, 1, 2, 2), np.float32), labels)
    top = Evaluation(model, split, scores).measure()["top"]
    wanted = top_k_accuracy_score(labels, scores - 1e-6 * labels, k=5, labels=labels)
    assert (top["k"], top["accuracy"]) == (5, wanted)


@pytest.mark.parametrize(
    ("data", "top", "message"),
    [
        ((), "10", "--top 10 of 10 classes is always correct: choose a smaller K"),
        ((), "0", "must be a whole number of at least 1"),
        (("--compose", "2"), "3", "--top applies to single-label data only"),
    ],
)
def test_a_senseless_top_k_is_refused(capsys, data, top, message):
    folder = run(*data)
    said = said_by(capsys, evaluate.main, folder, "--top", top, code=2)
    assert message in said.err and not (folder / "evaluation").exists()
