"""overlap: measures by hand, and a tiny run of the whole experiment."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tiny_runs import summary

from minicaps import models
from minicaps.backend import choose_device
from minicaps.cli.signals import StopRequest
from minicaps.data import strokes
from minicaps.experiments import __main__ as command
from minicaps.experiments import overlap
from minicaps.experiments.equal import best_rate, history
from minicaps.experiments.lab import Lab
from minicaps.models.inputs import tensor_for
from minicaps.models.multilabel import highest, redraw
from minicaps.runs import checkpoint

RATES = [1e-9, 0.01]


def test_what_is_recognised_by_hand():
    labels = np.array([[1, 0, 1], [1, 1, 0], [1, 1, 0], [0, 1, 1]], np.uint8)
    lengths = np.array([[0.9, 0.2, 0.6], [0.9, 0.4, 0.1], [0.8, 0.9, 0.6], [0.9, 0.8, 0.1]])
    # both found; both, one below ½; both, with another class above ½; one
    expected = {"digits": 7 / 8, "error": 1 / 4, "sure": 1 / 4}
    assert overlap.answers(lengths, labels) == expected
    logits = np.log(lengths / (1 - lengths))
    assert overlap.answers(logits, labels, logits=True) == expected


def a_look(drawn, change=((6, 4, 2, 1),)):
    """A pair with classes 0 and 1 of four, for which 0 and 2 are predicted."""
    digits = np.array([[[[[1.0, 0.0]]], [[[0.0, 1.0]]]]])  # (1, 2, 1, 1, 2)
    present, answered = np.array([[1, 1, 0, 0]]) > 0, np.array([[1, 0, 1, 0]]) > 0
    scores = np.array([[0.9, 0.1, 0.8, 0.2]])
    return overlap.Look(digits, np.array([drawn]), np.array(change), scores, present, answered)


def test_how_digits_are_redrawn_by_hand():
    nothing, left, right = ([[[x, y]]] for x, y in ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0)))
    assert overlap.redrawn(a_look([left, right, right, right]))["fit"] == 1
    assert overlap.redrawn(a_look([left, nothing, left, left]))["fit"] == 0.5
    assert overlap.redrawn(a_look([nothing, nothing, left, left]))["fit"] == 0
    assert overlap.redrawn(a_look([right, left, left, left]))["fit"] == -1
    # Only class 3 is neither present nor predicted: 1 relative to (6 + 4) / 2
    assert overlap.redrawn(a_look([left, right, right, right]))["absent"] == 1 / 5


@pytest.fixture
def lab(tmp_path, monkeypatch):
    monkeypatch.setattr(strokes, "TRAIN_SIZE", 40)
    return Lab(tmp_path / "runs", False, choose_device("cpu"), None, StopRequest())


@pytest.mark.parametrize("name", ["capsnet", "dense-cnn"])
def test_a_look_shows_what_the_network_sees_and_draws(name, lab):
    pairs = overlap._test_pairs(lab, "strokes", 0)
    model = models.build(name, pairs.shape, 10, preset="small", decoder=True).eval()
    view = overlap.look(lab, model, pairs, 5)
    images, labels = view.digits.max(axis=1), pairs.labels[:5]
    np.testing.assert_array_equal(images, pairs.take(np.arange(5)).images)
    _, drawn = redraw(model, images, labels)
    np.testing.assert_allclose(view.drawn[view.present], np.concatenate(drawn), atol=1e-6)
    np.testing.assert_array_equal(view.present, labels)
    assert (view.answered.sum(axis=1) == 2).all()
    scores = model(tensor_for(model, images)).activations.data
    np.testing.assert_allclose(view.activations, scores, atol=1e-6)
    assert view.answered[np.arange(5), scores.argmax(axis=1)].all()
    short = overlap.draw_each(lab, model, 1e-6 * np.ones((1, 10, 4), np.float32))
    zeros = overlap.draw_each(lab, model, np.zeros((1, 10, 4), np.float32))
    np.testing.assert_allclose(short, zeros, atol=1e-5)


def test_the_pairs_that_are_asked_are_those_of_the_training_run(lab):
    ours, theirs = overlap._test_pairs(lab, "strokes", 3), lab.data("strokes", 3, compose=2).test
    for name in ("members", "offsets", "labels"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))


@pytest.mark.slow
def test_pairs_are_measured_and_drawn(lab, monkeypatch, capsys):
    _, held_out = lab.data("strokes", 0, compose=2).cut_validation(8, 0)

    def pairs_found(run):
        activations = lab.activations(lab.model(run / "last.npz"), held_out)
        return (highest(activations, 2) == (held_out.labels > 0)).all(axis=1).sum()

    whole, short = overlap.parts, {"data": "strokes", "validation": 8, "epochs": 1, "batch_size": 8}
    short["search"] = {"epochs": 2, "learning_rate": RATES}
    monkeypatch.setattr(
        overlap, "parts", lambda quick: {part: own | short for part, own in whole(quick).items()}
    )
    assert command.main(["overlap", "--device", "cpu", "--seeds", "2", "--out", "out"]) == 0
    found = json.loads(Path("out/overlap/seed-0.json").read_text())
    for part in ("capsules-3", "capsules-1", "cnn"):
        figures = found[part]["figures"]
        network = Path(f"runs/experiments/overlap/{part}-seed-0")
        trained = summary(network)
        assert figures["sure"] == trained["test_accuracy"] and figures["learned"] == 32
        assert 0 <= 1 - figures["error"] <= figures["digits"] <= 1
        tried = {rate: network.with_name(f"{part}-{rate}-seed-0") for rate in RATES}
        assert {len(history(folder)["train_loss"]) for folder in tried.values()} == {2}
        assert figures["rate"] == best_rate(tried.get, RATES, pairs_found)[0]
        assert {*figures["searched"]} == {*map(str, RATES)}
        assert not any(network.with_name(f"{part}-{rate}-seed-1").exists() for rate in RATES)
        assert not list(network.glob("epoch-*.npz"))  # read by no one
        wrong = {kind: len(text.split()) / 30 for kind, text in figures["wrong"].items()}
        assert wrong == pytest.approx(
            {"found": figures["error"], "exactly two": 1 - figures["sure"]}
        )
        options = checkpoint.load(network / "last.npz", ("options",))[1]["options"]
        assert options["learning_rate"] == figures["rate"]
        assert (options["loss"], options["reconstruction"]) == ("margin", 0.0005)
    boxes = {entry["figures"]["boxes"] for entry in found.values()}
    assert len(boxes) == 1 and 0.3 < boxes.pop() < 1
    report = json.loads(Path("out/overlap.json").read_text())
    assert [row[0] for row in report["table"][1:]] == ["capsules-3", "capsules-1", "cnn"]
    other = json.loads(Path("out/overlap/seed-1.json").read_text())
    errors = [f"{100 * f['cnn']['figures']['error']:.1f}" for f in (found, other)]
    error = f"{' · '.join(errors)} %"
    assert report["headline"][2][:3] == ["cnn: pairs of which a digit is missed", "8.1 %", error]
    assert Path("out/overlap.png").stat().st_size > 10_000
    with Image.open("out/overlap-pairs.png") as pairs:
        assert pairs.mode == "RGB" and pairs.width * 4 == pairs.height * 8  # square images
