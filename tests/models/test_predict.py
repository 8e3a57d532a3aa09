"""Test prediction, training and evaluation in memory, as in a notebook."""

import json
import tracemalloc

import numpy as np
import pytest
from PIL import Image
from thinning import thinned_rows

from minicaps import Tensor, models
from minicaps.data.own.from_memory import targets
from minicaps.data.preprocessing import Preprocessing, as_images
from minicaps.errors import CheckpointError, DataError
from minicaps.evaluate import __main__ as evaluate_command
from minicaps.evaluate import evaluate
from minicaps.models.base import EVALUATION_BATCH
from minicaps.models.multilabel import seen
from minicaps.predict import __main__ as predict
from minicaps.runs import load_model
from minicaps.train import __main__ as train_command
from minicaps.train import fit
from minicaps.train.step import Learner

NETWORKS = [
    ("capsnet", {"preset": "small"}),
    ("capsnet", {"preset": "small", "routing": "leaky"}),
    ("capsule-cnn", {"batch_norm": True}),
    ("pooling-cnn", {"batch_norm": True}),
    ("baseline-cnn", {"batch_norm": True}),
    ("dense-cnn", {"preset": "small"}),
    ("matrix-capsnet", {"preset": "small", "batch_norm": True}),
]


def some_images(n=3, size=20, seed=0):
    return np.random.default_rng(seed).random((n, size, size), np.float32)


def two_classes(n=40):
    """Draw images (n, 20, 20) of horizontal (class 0) and vertical (class 1) bars, with labels."""
    labels = np.arange(n) % 2
    images = np.zeros((n, 20, 20), np.uint8)
    for k, image in enumerate(images):
        bar = slice(4 + k % 12, 7 + k % 12)
        image[(bar, slice(2, 18)) if labels[k] == 0 else (slice(2, 18), bar)] = 255
    return images, labels


SHORT = {"epochs": 4, "batch_size": 8, "reconstruction": 0, "quiet": True, "device": "cpu"}


# ---- predicting


@pytest.mark.parametrize(
    ("name", "options"),
    thinned_rows(NETWORKS, [NETWORKS[2], NETWORKS[4]]),
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value.values())),
)
def test_one_image_at_a_time_equals_the_batch_and_the_network_stays(name, options):
    model = models.build(name, (1, 20, 20), 3, **options)
    for _ in range(2):  # sets the running statistics of batch normalization
        model(Tensor(some_images(4)[:, None]))
    before = model.state_dict()
    together = model.predict(some_images())
    alone = [model.predict(image[None]) for image in some_images()]
    assert together.probabilities.shape == (3, 3)
    for k, one in enumerate(alone):
        np.testing.assert_allclose(one.probabilities[0], together.probabilities[k], atol=1e-6)
        assert one.classes == together.classes[k : k + 1]
    assert model.training
    for key, value in model.state_dict().items():
        np.testing.assert_array_equal(value, before[key])


def test_a_loaded_network_knows_its_classes_and_stays_in_evaluation_mode(tmp_path):
    images, labels = two_classes()
    names = ["lying", "upright"]
    fit(images, labels, class_names=names, out=tmp_path / "run", size=20, **SHORT)
    model = load_model(tmp_path / "run")
    assert not model.training
    assert model.class_names == ("lying", "upright")
    assert (model.loss, model.multi) == ("margin", False)
    assert model.preprocessing == Preprocessing((1, 20, 20), "dark", inverted=False)
    prediction = model.predict(images)
    assert prediction.classes == [names[k] for k in labels]
    assert len(prediction) == 40
    assert "lying" in repr(prediction)
    lengths = model(Tensor(images[:, None] / np.float32(255))).activations.numpy()
    np.testing.assert_allclose(prediction.probabilities, lengths, atol=1e-6)
    assert load_model(tmp_path / "run" / "last.npz", "cpu").class_names == ("lying", "upright")


def test_probabilities_of_every_kind():
    logits = Tensor(np.array([[1.0, -2.0, 0.5]]))
    network = models.build("dense-cnn", (1, 28, 28), 3, preset="small")
    e = np.exp(logits.data - 1)
    np.testing.assert_allclose(network.probabilities(logits).data, e / e.sum())
    sigmoid = 1 / (1 + np.exp(-logits.data))
    for network.multi, network.loss in ((True, "cross-entropy"), (False, "margin")):
        np.testing.assert_allclose(network.probabilities(logits).data, sigmoid)
    network = models.build("capsnet", (1, 28, 28), 3, preset="small")
    lengths = Tensor(np.array([[0.9, 0.6, 0.0]]))
    np.testing.assert_array_equal(network.probabilities(lengths).data, lengths.data)
    network.loss = "cross-entropy"
    np.testing.assert_allclose(network.probabilities(lengths).data, [[0.6, 0.4, 0.0]])
    np.testing.assert_array_equal(network.probabilities(Tensor(np.zeros((1, 3)))).data, 0)


def test_images_of_every_kind_are_one():
    model = models.build("capsnet", (3, 28, 28), 3, preset="small")
    gray = np.rint(some_images(2, 28) * 255).astype(np.uint8)
    expected = model.predict(gray).probabilities
    color = np.repeat(gray[..., None], 3, axis=3)
    for same in (color, color.transpose(0, 3, 1, 2), gray / 255, gray.astype(np.uint16) * 257):
        np.testing.assert_allclose(model.predict(same).probabilities, expected, atol=1e-6)
    np.testing.assert_allclose(model.predict(list(color)).probabilities, expected, atol=1e-6)
    ragged = [gray[0], np.pad(color[1], ((0, 28), (0, 28), (0, 0)))]
    assert model.predict(ragged).probabilities.shape == (2, 3)
    inverted = model.predict(255 - gray, invert=True).probabilities
    np.testing.assert_allclose(inverted, expected, atol=1e-6)
    for none in ([], np.zeros((0, 28, 28)), np.zeros((0, 28, 28, 3))):
        assert model.predict(none).probabilities.shape == (0, 3)


@pytest.mark.parametrize(
    ("images", "said"),
    [
        (np.zeros((28, 28)), "looks like one image"),
        (np.zeros((28, 28, 3)), "looks like one image"),
        (np.zeros((5, 0, 28)), "no pixels"),
        ([np.zeros((28, 28)), np.zeros((0, 28))], "no pixels"),
        (np.full((1, 28, 28), 255.0), "expected floats from 0 to 1"),
        (np.full((1, 28, 28), np.nan), "infinite or NaN"),
        (np.full((1, 28, 28), -1), "pixels from -1"),
        (np.full((1, 28, 28), 300), "to 300"),
        (np.ones((1, 28, 28), np.uint8), "white is 255"),
        (np.full((1, 28, 28), 200, np.uint16), "white is 65535"),
        (np.array([[["a"]]]), "expected an array of numbers"),
        (np.array([[[None]]]), "expected an array of numbers"),
        (np.ma.zeros((1, 28, 28)), "masked array"),
        (np.zeros((1, 5, 28, 28)), "have shape"),
        ([np.zeros((2, 28, 28, 3))], "have shape"),
        ([Image.new("P", (28, 28))], "mode P: convert it"),
    ],
)
def test_images_that_could_be_misread_are_refused(images, said):
    for channels in (1, 3):
        model = models.build("capsnet", (channels, 28, 28), 3, preset="small")
        with pytest.raises(DataError, match=said):
            model.predict(images)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_batch_of_three_images_is_a_batch(channels):
    model = models.build("capsnet", (channels, 28, 28), 3, preset="small")
    images = np.rint(some_images(3, 28) * 255).astype(np.uint8)
    alone = [model.predict([image]).probabilities[0] for image in images]
    np.testing.assert_allclose(model.predict(images).probabilities, alone, atol=1e-6)
    np.testing.assert_allclose(
        model.predict([Image.fromarray(image) for image in images]).probabilities, alone, atol=1e-6
    )


@pytest.mark.parametrize("option", ["invert", "centre_ink"])
@pytest.mark.parametrize("value", ["no", "Auto", 2])
def test_an_unknown_way_to_change_images_is_refused(option, value):
    model = models.build("dense-cnn", (1, 28, 28), 3, preset="small")
    with pytest.raises(ValueError, match=f'{option} must be True, False or "auto"'):
        model.predict(some_images(1, 28), **{option: value})


def test_every_inner_module_returns_to_its_own_mode():
    """Frozen batch norm in a network that is trained stays frozen."""
    images, labels = some_images(4)[:, None], [0, 1, 2, 0]
    model = models.build("pooling-cnn", (1, 20, 20), 3, batch_norm=True)
    model.features.convolutions[0].norm.eval()
    before = [module.training for _, module in model.modules()]
    model.predict(images)
    evaluate(model, images, labels)
    assert [module.training for _, module in model.modules()] == before
    assert len(set(before)) == 2


def test_a_network_that_does_not_know_its_images_says_so():
    model = models.PoolingCNN((1, 20, 20), 3)
    for use in (lambda: model.predict(some_images()), lambda: evaluate(model, some_images(), [0])):
        with pytest.raises(ValueError, match=r"build it with minicaps\.models\.build"):
            use()


def test_the_scale_does_not_depend_on_the_batch():
    dark, bright = np.full((1, 5, 5), 3, np.uint8), np.full((1, 5, 5), 200, np.uint8)
    np.testing.assert_array_equal(as_images(np.concatenate([dark, bright]))[:1], as_images(dark))
    assert as_images(dark).max() == np.float32(3 / 255)


def test_a_network_with_infinite_weights_predicts_nothing():
    model = models.build("dense-cnn", (1, 28, 28), 3, preset="small")
    model.classes.weight.data[:] = np.inf
    with pytest.raises(CheckpointError, match="infinite or NaN"), np.errstate(all="ignore"):
        model.predict(some_images(2, 28))


# ---- training and evaluating


def test_training_in_memory_learns_and_is_evaluated():
    images, labels = two_classes(60)
    model = fit(images[:40], labels[:40], test=(images[40:], labels[40:]), seed=3, **SHORT)
    assert not model.training
    assert model.class_names == ("0", "1")
    result = evaluate(model, images[40:], labels[40:])
    assert (result["samples"], result["accuracy"]) == (20, 1.0)
    assert result["accuracy_interval_95"][0] == pytest.approx(0.8389, abs=1e-4)
    assert result["confusion"] == [[10, 0], [0, 10]]
    assert evaluate(model.train(), images[40:], labels[40:]) == result
    assert model.training  # unchanged


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (np.array(["yes", "no"] * 20), ("no", "yes")),
        (np.array([7, 3] * 20), ("3", "7")),
        (np.array([True, False] * 20), ("False", "True")),
        (np.array([[2.0], [1.0]] * 20), ("1", "2")),
        ([b"a", b"b"] * 20, ("a", "b")),
    ],
)
def test_labels_of_every_kind(labels, names):
    images, _ = two_classes()
    model = fit(images, labels, **SHORT | {"epochs": 1})
    assert model.class_names == names
    result = evaluate(model, images, labels)
    assert [row["pictures"] for row in result["classes"]] == [20, 20]
    assert evaluate(model, images, np.array(labels)) == result


def test_several_labels_an_image():
    images, labels = two_classes(48)
    both = np.maximum(images, np.roll(images, 1, axis=0))
    flags = np.zeros((48, 2), np.uint8)
    flags[np.arange(48), labels] = 1
    images = np.concatenate([images, both])
    flags = np.concatenate([flags, np.ones_like(flags)])
    options = SHORT | {"epochs": 8}
    model = fit(images, flags, class_names=["lying", "upright"], validation=0, **options)
    assert model.multi
    found = model.predict(images[:2]).classes + model.predict(images[-2:]).classes
    assert all(isinstance(names, tuple) for names in found)
    result = evaluate(model, images, flags)
    activations = model.predict(images).probabilities
    assert result["right"] == int((seen(activations) == flags).all(axis=1).sum())


def test_a_run_folder_of_arrays_serves_the_commands(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    images, labels = two_classes()
    np.savez("bars.npz", images=images, labels=labels)
    fit(images, labels, out="run", test=(images[:10], labels[:10]), **SHORT)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["test_samples"] == 10
    assert summary["command"].startswith("minicaps.train.fit(images, labels, ")
    capsys.readouterr()
    assert evaluate_command.main(["run", "--data", "bars.npz", "--device", "cpu"]) == 0
    written = json.loads((tmp_path / "run" / "evaluation-bars" / "evaluation.json").read_text())
    result = evaluate(load_model("run"), images, labels)
    assert {key: written[key] for key in ("right", "loss", "confusion")} == {
        key: result[key] for key in ("right", "loss", "confusion")
    }
    assert evaluate_command.main(["run", "--device", "cpu"]) == 1
    assert "which are not stored" in capsys.readouterr().err
    assert train_command.main(["--resume", "run"]) == 1
    assert "cannot be resumed" in capsys.readouterr().err
    assert predict.main(["run", "none.png", "--no-figures", "--device", "cpu"]) == 1


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        ({"epoch": 3}, TypeError, "fit has no option epoch"),
        ({"resume": "run"}, TypeError, "fit has no option resume"),
        ({"epochs": 0}, ValueError, "^epochs: must be"),
        ({"epochs": True}, ValueError, "epochs must have a value"),
        ({"balance": "maybe"}, ValueError, "^balance: must be yes or no, not 'maybe'"),
        ({"batch_norm": "no"}, ValueError, "^batch_norm: ignored explicit argument 'no'"),
        ({"model": "resnet"}, ValueError, "resnet"),
        ({"start_from": "nowhere"}, CheckpointError, "nowhere"),
        ({"tf32": True}, ValueError, "TF32|tf32"),
        ({"test": (np.zeros((2, 20, 20)), [0, 5])}, DataError, "'5', which is not a class"),
        ({"test": (np.zeros((2, 20, 20)),)}, ValueError, "must be a pair"),
        ({"test": (np.zeros((2, 20, 20)), np.ones((2, 2)))}, DataError, "several labels"),
        ({"class_names": ["a", "b", "c"]}, DataError, "no image of class 'c'"),
        ({"class_names": ["a", "a"]}, DataError, "different names"),
        ({"class_names": "ab"}, DataError, "sequence of nonempty texts"),
        ({"class_names": ["a", ""]}, DataError, "sequence of nonempty texts"),
        ({"class_names": ["a", "b\x1b[31m"]}, DataError, "printable"),
        ({"class_names": ["1", "2"]}, DataError, "'0', which is not a class"),
        ({"labels": np.zeros(40)}, DataError, "at least 2 classes"),
        ({"labels": [0, 1, 1]}, DataError, "40 images"),
        ({"labels": np.full(40, np.nan)}, DataError, "not whole numbers"),
        ({"labels": [0.5, 1] * 20}, DataError, "not whole numbers"),
        ({"labels": [1e20, 0] * 20}, DataError, "not whole numbers"),
        ({"labels": [None, "a"] * 20}, DataError, "mix types or are missing"),
        ({"labels": np.ma.zeros(40)}, DataError, "masked array"),
        ({"labels": [[0], [0, 1]] * 20}, DataError, "different lengths"),
        ({"images": [np.zeros((20, 20)), np.zeros((21, 20))] * 20}, DataError, "different sizes"),
        ({"images": np.zeros((0, 20, 20)), "labels": []}, DataError, "no images"),
    ],
)
def test_wrong_use_is_refused(change, kind, said):
    images, labels = two_classes()
    given = {"images": images, "labels": labels} | SHORT | change
    with pytest.raises(kind, match=said):
        fit(**given)


def test_wrong_labels_are_refused():
    images, labels = two_classes()
    model = fit(images, labels, class_names=["lying", "upright"], **SHORT | {"epochs": 1})
    for wrong in (labels + 1, np.where(labels, "up", "lying"), labels[:5], np.full(40, np.nan)):
        with pytest.raises(DataError):
            evaluate(model, images, wrong)
    with pytest.raises(DataError, match="several labels"):
        evaluate(model, images, np.ones((40, 2)))
    with pytest.raises(DataError, match="no images"):
        evaluate(model, images[:0], labels[:0])


def test_integers_are_names_where_all_names_are_integers_and_else_numbers():
    assert targets([7, 3], 2, ("3", "7")).tolist() == [1, 0]
    assert targets([1.0, 0.0], 2, ("1", "0")).tolist() == [0, 1]
    assert targets([1, 0], 2, ("7", "cat")).tolist() == [1, 0]
    assert targets(["cat", "7"], 2, ("7", "cat")).tolist() == [1, 0]
    assert targets([True, False], 2, ("a", "b")).tolist() == [1, 0]
    assert targets([True, False], 2, ("True", "False")).tolist() == [0, 1]
    assert targets([[0, 1], [1, 0]], 2, ("a", "b")).tolist() == [1, 0]
    flags = targets([[0, 1], [1, 0]], 2, ("a", "b"), multi=True)
    assert (flags.dtype, flags.tolist()) == (np.uint8, [[0, 1], [1, 0]])
    with pytest.raises(DataError, match="multi-label"):
        targets([0, 1], 2, ("a", "b"), multi=True)
    with pytest.raises(DataError, match="18446744073709551615"):
        targets(np.array([2**64 - 1, 0], np.uint64), 2, ("a", "b"))


def test_one_hot_labels_are_single_labels():
    images, labels = two_classes()
    model = fit(images, np.eye(2)[labels], **SHORT)
    assert not model.multi
    assert evaluate(model, images, np.eye(2)[labels]) == evaluate(model, images, labels)


def test_training_starts_from_another_run(tmp_path):
    images, labels = two_classes()
    fit(images, labels, out=tmp_path / "first", **SHORT)
    options = SHORT | {"epochs": 1, "learning_rate": 1e-12}
    model = fit(images, labels, start_from=tmp_path / "first", **options)
    for name, array in load_model(tmp_path / "first").state_dict().items():
        np.testing.assert_allclose(model.state_dict()[name], array, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"reconstruction": False}, {"decoder": False}),
        ({"model": "baseline-cnn", "dropout": False}, {"dropout": 0.0}),
        ({"model": "capsule-cnn", "batch_norm": np.True_}, {"batch_norm": True}),
    ],
)
def test_false_is_not_the_default(options, found):
    images, labels = two_classes(16)
    given = {k: v for k, v in SHORT.items() if k != "reconstruction"} | {"epochs": 1} | options
    model = fit(images, labels, **given)
    assert found.items() <= model.config["options"].items()


def test_an_interrupted_run_leaves_its_folder_free(tmp_path, monkeypatch):
    images, labels = two_classes()
    with monkeypatch.context() as patch:
        patch.setattr(Learner, "step", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            fit(images, labels, out=tmp_path / "run", **SHORT)
    fit(images, labels, out=tmp_path / "run", **SHORT)
    with pytest.raises(ValueError, match="already exists and is not empty: choose another out"):
        fit(images, labels, out=tmp_path / "run", **SHORT)


def test_memory_of_a_prediction_does_not_grow_with_the_images():
    """Large images are reduced a batch at a time."""
    model = models.build("dense-cnn", (1, 28, 28), 2, preset="small")
    images = np.zeros((1000, 128, 128), np.uint8)

    def peak(count):
        tracemalloc.start()
        try:
            model.predict(images[:count])
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(1000) < 1.1 * peak(EVALUATION_BATCH)
