"""Training and evaluation with every model and every loss."""

import numpy as np
import pytest
from thinning import thinned
from tiny_runs import history, parameters, refused, run, saved, summary

from minicaps import Tensor, data, models, ops
from minicaps.backend import choose_device
from minicaps.models.losses import LOSSES, classification_loss, spread_margin
from minicaps.models.rivals import fitted_rival
from minicaps.runs.building import load_model
from minicaps.runs.inference import classify, evaluate
from minicaps.train import __main__ as train
from minicaps.train import step as steps

CPU = choose_device("cpu")
CAPSNET = models.CapsNet
BASELINE = models.BaselineCNN

# ---- models

FEW = ["--limit", "10", "--validation", "2", "--batch-size", "8", "--epochs", "1"]  # one step
SAID = {
    "capsnet": "capsnet, preset small, routing agreement, loss margin, ",
    "capsule-cnn": "capsule-cnn, routing agreement, loss margin, ",
    "pooling-cnn": "pooling-cnn, loss margin, ",
    "baseline-cnn": "baseline-cnn, loss cross-entropy, ",
    "dense-cnn": "dense-cnn, preset small, loss cross-entropy, ",
    "matrix-capsnet": "matrix-capsnet, preset small, loss spread, ",
}


@pytest.mark.parametrize("name", thinned(models.MODELS, ("capsnet", "matrix-capsnet", "dense-cnn")))
def test_a_run_of_every_model(request, capsys, name):
    if name == "baseline-cnn":
        request.getfixturevalue("specks")
    assert train.main([*FEW, "--device", "cpu", "--model", name, "--out", "run"]) == 0
    size = sum(a.size for a in parameters("run").values())
    said = capsys.readouterr()
    assert f"\nModel: {SAID[name]}{size:,} parameters\n" in said.out
    assert said.err == ""
    assert summary("run")["parameters"] == size
    assert saved("run")[0]["optimizer/steps"] == 1
    # the file holds the model that was tested
    model, test = load_model("run/best.npz", CPU), data.load("strokes", limit=1).test
    loss = saved("run")[1]["options"]["loss"]
    measured = (summary("run")["test_loss"], summary("run")["test_right"])
    assert evaluate(model, test, loss) == measured
    assert ("reconstruction_loss" in history("run")[0]) == (name == "capsnet")


@pytest.mark.slow
@pytest.mark.parametrize("model", thinned(["pooling-cnn", "capsule-cnn"]))
def test_running_statistics_are_saved_with_the_model(model):
    folder = run(*FEW, "--model", model, "--batch-norm")
    mean = parameters(folder, "best.npz")["features.convolutions.0.norm.mean"]
    assert mean.any()
    measured = (summary(folder)["test_loss"], summary(folder)["test_right"])
    loaded = load_model(folder / "best.npz", CPU)
    assert evaluate(loaded, data.load("strokes", limit=1).test, "margin") == measured


# ---- losses


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_trains(loss):
    rows = history(run("--loss", loss, "--epochs", "8", "--schedule", "constant"))
    assert rows[-1]["train_loss"] < 0.9 * rows[0]["train_loss"]
    assert rows[-1]["train_accuracy"] > rows[0]["train_accuracy"]


@pytest.mark.parametrize("loss", thinned(LOSSES))
def test_every_figure_is_of_the_loss_that_is_trained(loss):
    frozen = ("--learning-rate", "1e-30", "--limit", "10", "--batch-size", "4")
    folder = run("--loss", loss, *frozen, "--validation", "3")
    model = load_model(folder / "last.npz", CPU)
    whole = data.load("strokes", limit=10)
    rest, validation = whole.cut_validation(3, 0)
    (row,) = history(folder)
    found = [row["train_loss"], row["validation_loss"], summary(folder)["test_loss"]]
    for split, value in zip((rest, validation, whole.test), found, strict=True):
        activations = model(Tensor(split.images)).activations
        expected = {
            "margin": ops.margin_loss(activations, split.labels),
            "spread": ops.spread_loss(activations, split.labels, margin=0.9),
            "cross-entropy": -np.log(_share(activations.data, split.labels)).mean(),
        }
        assert value == pytest.approx(float(expected[loss]), rel=1e-4)


def _share(activations, labels):
    return activations[np.arange(len(labels)), labels] / activations.sum(axis=1)


def test_cross_entropy_of_activations_and_of_logits():
    scores, labels = np.array([[0.6, 0.1, 0.1], [0.0, 0.3, 0.0]]), np.array([0, 1])
    found = classification_loss("cross-entropy", CAPSNET, Tensor(scores), labels)
    assert found.item() == pytest.approx(-np.log(0.75) / 2, abs=1e-5)
    found = classification_loss("cross-entropy", BASELINE, Tensor(scores), labels)
    assert found.item() == ops.cross_entropy(Tensor(scores), labels).item()


def test_the_margin_loss_takes_the_sigmoids_of_logits():
    """Σ_k T_k max(0, 0.9 − σ(x_k))² + ½ (1 − T_k) max(0, σ(x_k) − 0.1)²."""
    logits, labels = Tensor(np.array([[0, np.log(4), -99]])), np.array([0])
    found = classification_loss("margin", BASELINE, logits, labels)
    assert found.item() == pytest.approx(0.4**2 + 0.7**2 / 2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("loss", LOSSES)
def test_losses_of_dead_activations_are_finite(loss, dtype):
    for dead in (np.zeros((2, 3)), np.eye(3)[:2]):
        activations = Tensor(dead.astype(dtype), requires_grad=True)
        value = classification_loss(loss, CAPSNET, activations, np.array([2, 2]))
        value.backward()
        assert np.isfinite(value.data) and value.dtype == dtype
        assert np.isfinite(activations.grad).all() and activations.grad[:, 2].all()


def test_the_margin_grows_from_a_fifth_to_nine_tenths():
    margins = [spread_margin(epoch) for epoch in (0, 0.1, 0.5, 1, 2, 100)]
    np.testing.assert_allclose(margins, [0.2, 0.27, 0.55, 0.9, 0.9, 0.9])


def losses_of(monkeypatch, *options):
    """Return (margin, weight of absent classes) of the losses trained and of those reported."""
    trained, reported = [], []

    def watched(name, model, activations, labels, margin=0.9, absent=0.5):
        (trained if activations.requires_grad else reported).append((margin, absent))
        return classification_loss(name, model, activations, labels, margin, absent)

    monkeypatch.setattr(steps, "classification_loss", watched)
    run(*options)
    return np.array(trained), reported


def test_the_spread_loss_is_trained_at_the_margin_of_the_step(monkeypatch):
    trained, reported = losses_of(monkeypatch, "--loss", "spread", "--epochs", "2")
    epochs = np.arange(10) / 5  # five batches per epoch
    np.testing.assert_allclose(trained[:, 0], np.minimum(0.2 + 0.7 * epochs, 0.9))
    assert reported == [(0.9, 0.5)] * 10


def test_absent_classes_have_their_own_weight_in_training_only(monkeypatch):
    trained, reported = losses_of(monkeypatch, "--absent-weight", "0.25")
    assert set(trained[:, 1]) == {0.25} and set(reported) == {(0.9, 0.5)}
    lengths, labels = Tensor(np.array([[0.9, 0.5]])), np.array([0])
    assert classification_loss("margin", CAPSNET, lengths, labels, absent=0.25).item() == (
        pytest.approx(0.25 * 0.4**2)
    )


def test_the_spread_loss_learns_how_close_a_rival_may_come():
    """From the validation images, with the model of the best epoch; other losses need no limit."""
    folder = run("--loss", "spread", "--epochs", "2", "--validation", "10")
    _, validation = data.load("strokes", limit=40).cut_validation(10)
    expected = fitted_rival(classify(load_model(folder), validation), validation.labels)
    assert summary(folder)["rival"] == pytest.approx(expected)
    assert "rival" not in summary(run("--loss", "margin", out="other"))


def test_a_loss_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="unknown loss 'hinge': choose margin, spread"):
        classification_loss("hinge", CAPSNET, Tensor(np.ones((1, 3))), np.zeros(1, int))


@pytest.mark.slow
def test_the_best_parameters_of_another_network_are_not_measured(capsys):
    folder = run("--model", "capsule-cnn")
    other = run("--model", "pooling-cnn", out="other")
    (folder / "best.npz").write_bytes((other / "best.npz").read_bytes())
    capsys.readouterr()
    assert "a different network" in refused(capsys, "--resume", str(folder), "--quiet", code=1)
