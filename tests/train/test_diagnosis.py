"""Problems in training are reported, and healthy training causes no warnings."""

import json

import numpy as np
import pytest
from thinning import thinned
from tiny_runs import TINY, edit, go_on, refused, run, saved, summary

from minicaps import Tensor, data, models, ops
from minicaps.runs.configuration import OptimizationOptions, Options
from minicaps.train import diagnosis, trainer
from minicaps.train.defaults import training_length
from minicaps.train.trainer import Trainer


def mean_loss(length, classes):
    """Return the margin loss for one image of each class if all capsules have the same length."""
    lengths = np.full((classes, classes), float(length))
    return float(ops.margin_loss(Tensor(lengths), np.arange(classes)))


def equal(classes):
    return np.full(classes, 1 / classes)


@pytest.mark.parametrize("classes", [2, 3, 10, 26])
def test_the_three_losses_where_nothing_is_learned(classes):
    """The dead and saturated losses are computed directly, the blind one by trying all lengths."""
    shares = equal(classes)
    blind = min(mean_loss(length, classes) for length in np.linspace(0, 1, 2001))
    for loss, word in (
        (mean_loss(0, classes), "the network is dead"),
        (mean_loss(1, classes), "the network is saturated"),
        (blind, "alive but blind"),
    ):
        said = diagnosis.stuck(loss, 1 / classes, shares)
        assert word in said and f"{loss:.4g}" in said and "try" in said


def test_the_numbers_of_ten_classes():
    for loss, word in ((0.81, "dead"), (3.645, "saturated"), (0.5236, "blind")):
        assert word in diagnosis.stuck(loss, 0.1, equal(10))


def test_blind_to_unequal_classes():
    """Of two classes, one is three times as frequent, so their best lengths differ."""
    shares, lengths = np.array([0.75, 0.25]), np.linspace(0, 1, 2001)
    losses = [p * (0.9 - lengths) ** 2 + 0.5 * (1 - p) * (lengths - 0.1) ** 2 for p in shares]
    blind = sum(loss.min() for loss in losses)
    assert "blind" in diagnosis.stuck(blind, 0.75, shares)
    assert diagnosis.stuck(blind, 0.95, shares) is None  # it is not blind


def test_many_classes_and_a_small_weight_of_those_absent():
    """The best length follows the weight in training, but the loss is measured with 0.5."""
    p, lengths = 1 / 100, np.linspace(0, 1, 20001)

    def loss(weight):
        return 100 * (p * (0.9 - lengths) ** 2 + weight * (1 - p) * (lengths - 0.1) ** 2)

    blind = loss(0.5)[loss(0.045).argmin()]
    assert "blind" in diagnosis.stuck(blind, p, equal(100), absent=0.045)
    assert diagnosis.stuck(blind, 3 * p, equal(100), absent=0.045) is None  # it begins to see
    assert diagnosis.stuck(blind, p, equal(100)) is None


def test_several_classes_in_a_picture():
    """Two of ten classes are present; see the exercise on two digits in an image in lesson 11."""
    shares = np.full(10, 0.2)
    for loss, word in ((1.62, "dead"), (3.24, "saturated"), (0.8533, "blind")):
        assert word in diagnosis.stuck(loss, 0.0, shares)


@pytest.mark.parametrize("classes", [2, 10, 26])
def test_other_losses_are_not_stuck(classes):
    saturated = mean_loss(1, classes)
    for loss in (0.0, 0.05, 0.7, 0.8, 0.99 * saturated, 1.01 * saturated, 100.0, np.nan):
        assert diagnosis.stuck(loss, 1 / classes, equal(classes)) is None


def options(**given):
    usual = {"batch_size": 64, "epochs": 6, "schedule": "exponential", "decay": 0.7}
    return OptimizationOptions(**usual | given)


def test_few_steps():
    assert "1 step per epoch, 6 in total" in diagnosis.few_steps(options(), 40)
    assert diagnosis.few_steps(options(batch_size=8, epochs=60), 40) is None  # 300 steps
    assert "try --epochs 50 --schedule cosine, and" in diagnosis.few_steps(options(batch_size=4), 8)
    assert "leave --epochs and --batch-size out" in diagnosis.few_steps(options(), 40, custom=True)
    assert diagnosis.few_steps(options(), 9000) is None
    assert diagnosis.few_steps(options(epochs=1), 64 * 20) is None


def test_a_learning_rate_that_vanishes():
    said = diagnosis.vanishing_step(options(epochs=60))
    assert "--decay 0.7 leaves 5e-10 of the learning rate after 60 epochs" in said
    assert diagnosis.vanishing_step(options(epochs=60, schedule="cosine")) is None
    assert diagnosis.vanishing_step(options()) is None


@pytest.mark.parametrize("value", [-0.1, 255.0, np.nan])
def test_pixels_out_of_range(value):
    images = np.zeros((3, 1, 4, 4), np.float32)
    assert diagnosis.pixels(images) is None
    assert diagnosis.pixels(images + 1) is None
    images[1, 0, 2, 2] = value
    assert "outside" not in diagnosis.pixels(images) and "from" in diagnosis.pixels(images)


def test_a_class_that_is_never_the_answer():
    names, present = ("cat", "dog", "eel"), np.array([10, 5, 2])
    assert (
        diagnosis.never_predicted(np.array([16, 1, 0]), present, 17, names) is None
    )  # there are too few eels
    said = diagnosis.never_predicted(np.array([17, 0, 0]), present, 17, names)
    assert "none of the 17 validation images is predicted as 'dog', though 5 labels say so" in said


def test_a_class_that_no_picture_lacks():
    names = ("cat", "dog", "eel")
    said = diagnosis.always_present(np.array([12, 3, 12]), 12, names)
    assert "all 12 training images contain 'cat', 'eel'" in said and "leave the class out" in said
    assert diagnosis.always_present(np.array([11, 3, 1]), 12, names) is None


def test_a_loss_of_zero_is_not_stuck():
    """If every image has all classes, a saturated network is correct."""
    assert diagnosis.stuck(0.0, 1.0, np.ones(2)) is None
    assert "dead" in diagnosis.stuck(1.62, 0.0, np.ones(2))


# ---- in a run


def test_a_run_tells_once_and_keeps_it(monkeypatch, capsys):
    """The network looks dead in every epoch; it is reported once, even after the run is resumed."""
    monkeypatch.setattr(trainer, "evaluate", lambda *_, **__: (0.81, 1))
    folder = run("--epochs", "2")
    go_on(folder, "--epochs", "4")
    assert capsys.readouterr().err.count("network is dead") == 1
    assert sum("network is dead" in text for text in summary(folder)["warnings"]) == 1
    assert saved(folder)[1]["progress"]["warnings"]["stuck"] in summary(folder)["warnings"]


@pytest.mark.slow
def test_a_run_from_before_warnings_were_kept_goes_on():
    path = run() / "last.npz"
    edit(path, lambda meta: meta["progress"].pop("warnings"))
    assert summary(go_on("run", "--epochs", "2"))["epochs"] == 2


def test_a_run_on_pictures_that_all_have_a_class(tmp_path, capsys):
    labels = np.array([[k % 2, k // 2 % 2, 1] for k in range(24)])
    images = np.random.default_rng(0).random((24, 28, 28))
    np.savez(tmp_path / "all.npz", images=images, labels=labels, class_names=["a", "b", "c"])
    folder = run("--data", str(tmp_path / "all.npz"), "--limit", "12", "--reconstruction", "0")
    told = [text for text in summary(folder)["warnings"] if "training images contain 'c':" in text]
    assert len(told) == 1 and told[0] in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_that_is_well_warns_of_nothing(capsys):
    folder = run("--batch-size", "1", "--epochs", "3")
    assert summary(folder)["warnings"] == []
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_a_blind_network_is_told(monkeypatch, capsys):
    """The network predicts the best constant lengths."""
    best = 1.35 / 5.5  # (p m⁺ + λ (1 − p) m⁻) / (p + λ (1 − p)) for p = 1/10
    forward = models.CapsNet.forward

    def blind(self, images):
        routed = forward(self, images)
        return routed._replace(activations=routed.activations * 0 + best)

    monkeypatch.setattr(models.CapsNet, "forward", blind)
    run("--limit", "400", "--validation", "200", "--batch-size", "100", "--reconstruction", "0")
    assert "alive but blind" in capsys.readouterr().err


def test_an_exploding_gradient_is_told(monkeypatch, capsys):
    run("--reconstruction", "1e6", "--learning-rate", "1e-30")
    assert "the gradient norm is" in capsys.readouterr().err


def test_a_class_that_a_run_never_predicts(monkeypatch, capsys):
    monkeypatch.setattr(diagnosis, "FEW_PICTURES", 1)
    run("--learning-rate", "1e-30")  # four validation images and an untrained network
    assert "none of the 4 validation images is predicted as" in capsys.readouterr().err


def test_pixels_from_0_to_255_are_told(monkeypatch, capsys):
    load = data.load

    def bytes_as_floats(*args, **keywords):
        whole = load(*args, **keywords)
        bright = data.Split(255 * whole.train.images, whole.train.labels)
        return data.Dataset(whole.name, bright, whole.test, whole.class_names)

    monkeypatch.setattr(data, "load", bytes_as_floats)
    run("--learning-rate", "1e-9")
    assert "the training images have values from 0 to 255" in capsys.readouterr().err


# ---- locating non-finite values


def network(name="capsnet", **given):
    return models.build(name, (1, 28, 28), 10, **given)


IMAGES = np.random.default_rng(0).random((3, 1, 28, 28), dtype=np.float32)


@pytest.mark.slow
def test_nothing_is_named_where_all_is_finite():
    assert diagnosis.where(network(), IMAGES) is None


def test_a_parameter_that_is_not_finite_is_named():
    model = network()
    name, p = list(model.named_parameters())[2]
    p.data[(0,) * p.ndim] = np.nan
    assert diagnosis.where(model, IMAGES) == f"in the parameter {name}"


@pytest.mark.parametrize(
    "name", thinned(["capsnet", "capsule-cnn", "matrix-capsnet"], ("capsnet", "capsule-cnn"))
)
def test_a_picture_that_is_not_finite_is_seen_in_the_first_layer(name):
    model = network(name)
    images = IMAGES.copy()
    images[1, 0, 5:20, 5:20] = np.nan
    first = next(key for key, module in model.modules() if key and not list(module.children()))
    assert diagnosis.where(model, images) == f"in the layer {first.rstrip('.')}"


@pytest.mark.slow
def test_the_iteration_of_a_routing_is_named(monkeypatch):
    """The parents overflow in the second of three iterations."""
    model = network()
    routing = model.classes.routing
    route = routing.route

    def overflowing(votes, **keywords):
        routed = route(votes, **keywords)
        history = list(routed.history)
        if history:
            history[1] = history[1]._replace(poses=history[1].poses * np.float32(np.inf))
        activations = routed.activations * np.float32(np.nan)
        return routed._replace(activations=activations).with_history(history)

    routing.route = overflowing
    said = diagnosis.where(model, IMAGES)
    assert said == "in the layer classes.routing, iteration 2 of 3"


def test_a_run_that_diverges_names_the_parameter(monkeypatch, capsys):
    step = Trainer._step

    def spoiling(self, *batch):
        step(self, *batch)
        self.model.classes.weight.data[0] = np.inf

    monkeypatch.setattr(Trainer, "_step", spoiling)
    said = refused(capsys, *TINY, "--out", "run", code=1)
    assert "in step 2 (epoch 1), first in the parameter classes.weight." in said


def test_one_class_for_all_validation_images():
    names_one_class = np.array([24, 0])
    assert "all 24 validation images" in diagnosis.constant(
        names_one_class, np.array([12, 12]), 0.5
    )
    assert diagnosis.constant(names_one_class, np.array([22, 2]), 0.5) is None  # nearly one class
    assert diagnosis.constant(names_one_class, np.array([12, 12]), 0.95) is None  # it has learned
    assert diagnosis.constant(np.array([23, 1]), np.array([12, 12]), 0.5) is None


# ---- after training


def compared(counts, accuracy, balanced, **options):
    """Compare a network with a linear classifier of accuracy 0.8 and balanced accuracy 0.5."""
    linear = {"accuracy": 0.8, "balanced_accuracy": 0.5}
    found = {"test_accuracy": accuracy, "test_balanced_accuracy": balanced}
    options = Options.from_dict({"learning_rate": 0.003} | options)
    found |= {"baselines": {"linear": linear}}
    return diagnosis.no_better(found, options, counts, training_length(counts.sum(), len(counts)))


def test_a_network_no_better_than_a_linear_classifier():
    even, uneven = np.array([5, 14]), np.array([5, 15])
    assert compared(even, 0.81, 0.4) is None
    said = compared(even, 0.8, 0.6)
    assert "(accuracy 80.00% against 80.00%): add --shift 2, leave --epochs" in said
    assert compared(uneven, 0.7, 0.51) is None
    said = compared(uneven, 0.9, 0.45)
    assert "(balanced accuracy 45.00% against 50.00%)" in said and "add --balance" in said
    assert "--balance" not in compared(uneven, 0.9, 0.45, balance=True)
    said = compared(even, 0.5, 0.5, batch_size=1, epochs=60, shift=1)
    assert "): train longer with --epochs 180, and look at the images" in said


@pytest.mark.parametrize(
    ("given", "flags"),
    [
        ({"batch_size": 40}, "--batch-size"),
        ({"epochs": 50}, "--epochs"),
        ({"epochs": 50, "batch_size": 40}, "--epochs and --batch-size"),
    ],
)
def test_options_that_were_not_given_are_not_blamed(given, flags):
    """Forty images and three classes get batches of 16 and 300 epochs, 900 steps in all."""
    counts, usual = np.array([14, 13, 13]), {"batch_size": 16, "epochs": 300, "shift": 2}
    assert training_length(40, 3) == (16, 300)
    said = compared(counts, 0.5, 0.5, **usual)
    assert "): try more images, a larger --size or another --seed, and look at" in said
    assert "--epochs" not in said and "--batch-size" not in said
    said = compared(counts, 0.5, 0.5, **usual | given)
    assert f"): leave {flags} out, to fit the images, and" in said


def test_a_run_of_custom_data_compares_itself_with_baselines(tmp_path, capsys):
    labels = np.arange(60) % 2
    images = np.zeros((60, 17, 17), dtype=np.float32)
    images[labels == 1, 2:15, 2:15] = 1
    np.savez("two.npz", images=images, labels=labels, class_names=["off", "on"])
    folder = run("--data", "two.npz", "--limit", "48", "--learning-rate", "1e-30")
    found, said = summary(folder), capsys.readouterr().out
    linear = found["baselines"]["linear"]
    assert (linear["accuracy"], linear["balanced_accuracy"]) == (1, 1)
    most = found["baselines"]["majority"]
    assert most["accuracy"] == 0.5
    assert f"images, balanced {found['test_balanced_accuracy']:.2%}) with the model of" in said
    line = f"\nBaselines: always {most['class']!r} 50.00%, linear classifier 100.00%"
    assert f"{line} (balanced 100.00%" in said
    parts = json.loads((folder / "split.json").read_text())
    assert linear["images"] == len(parts["train"]) < 48  # without those held out for validation
    (warning,) = (text for text in found["warnings"] if "linear" in text)
    assert f"\nNote: {warning}\n" in said
