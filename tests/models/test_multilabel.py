"""Test multi-label images: predictions, losses, reconstruction and training."""

import json

import numpy as np
import pytest
from tiny_runs import (
    TINY,
    assert_equal_runs,
    edit,
    go_on,
    parameters,
    refused,
    run,
    same,
    saved,
    send_in_call,
    summary,
)

from minicaps import Tensor, data, models, ops, plotting
from minicaps.backend import choose_device
from minicaps.data.batches import batches
from minicaps.data.compose import compose
from minicaps.models.losses import check_several, classification_loss
from minicaps.models.multilabel import (
    highest,
    one_at_a_time,
    reconstruction_loss,
    redraw,
    right_answers,
    seen,
)
from minicaps.runs.building import load_model
from minicaps.train import __main__ as train
from minicaps.train.trainer import Trainer

CPU = choose_device("cpu")
LABELS = np.array([[1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 0]], np.uint8)


@pytest.fixture(autouse=True)
def undrawn(monkeypatch, tiny):
    monkeypatch.setattr(plotting, "members", lambda *_: None)


def network(classes=4, decoder=True, seed=0):
    sizes = {"preset": "small", "decoder": decoder, "seed": seed}
    return models.build("capsnet", (1, 20, 20), classes, **sizes)


def lengths():
    return np.array([[0.9, 0.2, 0.51, 0.5], [0.6, 0.1, 0.1, 0.1], [0.9, 0.8, 0.7, 0.1]])


# ---- answers and losses


def test_an_answer_is_right_if_exactly_the_present_classes_are_seen():
    model = network()
    assert seen(lengths()).tolist() == [
        [True, False, True, False],  # 0.5 does not exceed the threshold
        [True, False, False, False],
        [True, True, True, False],
    ]
    assert right_answers(model, lengths(), LABELS).tolist() == [True, False, True]
    assert right_answers(model, lengths(), np.array([0, 1, 0])).tolist() == [True, False, True]


def test_logits_are_seen_above_zero():
    model = models.build("baseline-cnn", (1, 4, 4), 3)
    logits = np.array([[0.1, -0.1, 0.0], [3.0, 0.4, -2.0]])
    labels = np.array([[1, 0, 0], [1, 0, 0]], np.uint8)
    assert right_answers(model, logits, labels).tolist() == [True, False]


def test_the_highest_are_as_many_as_asked_for_and_of_equal_ones_the_first():
    equal = np.array([[0.2, 0.7, 0.7, 0.7], [0.0, 0.0, 0.0, 0.0]])
    assert highest(equal, 2).tolist() == [[False, True, True, False], [True, True, False, False]]
    counts = highest(lengths(), np.array([[1], [0], [4]]))
    assert counts.tolist() == [[True, False, False, False], [False] * 4, [True] * 4]


def test_margin_loss_of_several_classes_by_hand():
    # (0.9−0.5)² + 0.5 (0.6−0.1)² + (0.9−0.3)² = 0.16 + 0.125 + 0.36; nothing present: 0.5 · 0.8²
    activations = np.array([[0.5, 0.6, 0.3], [0.9, 0.1, 0.0]])
    labels = np.array([[1, 0, 1], [0, 0, 0]], np.uint8)
    loss = classification_loss("margin", network(3), Tensor(activations), labels)
    assert float(loss.data) == pytest.approx((0.645 + 0.32) / 2)


def test_cross_entropy_of_several_classes_is_binary_by_hand():
    logits, labels = np.array([[np.log(3), 0.0]]), np.array([[1, 0]], np.uint8)
    model = models.build("baseline-cnn", (1, 4, 4), 2)  # probabilities 3/4 and 1/2
    loss = classification_loss("cross-entropy", model, Tensor(logits), labels)
    assert float(loss.data) == pytest.approx((np.log(4 / 3) + np.log(2)) / 2)


@pytest.mark.parametrize(
    ("name", "logits", "fits"),
    [
        ("margin", False, True),
        ("spread", False, False),
        ("cross-entropy", False, False),
        ("cross-entropy", True, True),
    ],
)
def test_losses_for_one_class_are_refused(name, logits, fits):
    model = models.build("baseline-cnn", (1, 4, 4), 2) if logits else network()
    if fits:
        check_several(name, model)
    else:
        with pytest.raises(ValueError, match=f"--loss {name} requires exactly one class"):
            check_several(name, model)


# ---- the decoder


def test_classes_one_at_a_time():
    first, second, third = one_at_a_time(LABELS)
    assert first.tolist() == [[1, 0, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0]]
    assert second.tolist() == [[0, 0, 1, 0], [0, 0, 0, 0], [0, 1, 0, 0]]
    assert third.tolist() == [[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0]]
    (none,) = one_at_a_time(LABELS[1:2])
    assert not none.any()


def drawn_alone(model, poses, sample, label):
    """Decode one capsule of a sample, or no capsule if `label` is None."""
    alone = np.zeros_like(poses[sample : sample + 1])
    if label is not None:
        alone[0, label] = poses[sample, label]
    return model.decoder(Tensor(alone)).numpy()[0]


def poses_and_pictures(seed=0, count=2):
    random = np.random.default_rng(seed)
    return random.normal(size=(3, 4, 4)), random.random((3, count, 1, 20, 20))


def test_each_member_is_redrawn_from_its_own_capsule():
    model, (poses, parts) = network().astype(np.float64), poses_and_pictures()
    labels = np.array([[1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 1]], np.uint8)
    loss = reconstruction_loss(
        model, Tensor(poses), one_at_a_time(labels), parts.max(axis=1), parts, weight=0.1
    )
    errors = [
        ((drawn_alone(model, poses, sample, label) - parts[sample, k]) ** 2).sum()
        for sample in range(3)
        for k, label in enumerate(np.flatnonzero(labels[sample]))
    ]
    assert float(loss.data) == pytest.approx(0.1 * np.sum(errors) / (2 * 3))


def test_unknown_members_are_laid_over_each_other():
    model, (poses, parts) = network().astype(np.float64), poses_and_pictures(count=1)
    whole = parts[:, 0]
    loss = reconstruction_loss(model, Tensor(poses), one_at_a_time(LABELS), whole, weight=0.1)
    total = 0
    for sample, present in enumerate(LABELS):
        classes = [*np.flatnonzero(present)]
        classes += [None] * (3 - len(classes))  # with no capsule, the decoder draws the background
        drawn = [drawn_alone(model, poses, sample, label) for label in classes]
        total += ((np.max(drawn, axis=0) - whole[sample]) ** 2).sum()
    assert float(loss.data) == pytest.approx(0.1 * total / 3)


def test_absent_capsules_get_no_gradient_from_the_drawing():
    model, (poses, parts) = network().astype(np.float64), poses_and_pictures()
    poses = Tensor(poses, requires_grad=True)
    labels = np.array([[1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 1]], np.uint8)
    reconstruction_loss(
        model, poses, one_at_a_time(labels), parts.max(axis=1), parts, weight=1
    ).backward()
    np.testing.assert_array_equal(np.abs(poses.grad).sum(axis=2) > 0, labels > 0)


def test_one_class_is_drawn_as_it_was_before():
    model, (poses, parts) = network().astype(np.float64), poses_and_pictures()
    labels, images = np.array([2, 0, 3]), parts[:, 0]
    expected = ops.reconstruction_loss(model.reconstruct(Tensor(poses), labels), images, weight=0.1)
    loss = reconstruction_loss(model, Tensor(poses), [labels], images, weight=0.1)
    assert loss.data == expected.data


def test_redrawn_pictures_and_black_where_there_is_no_class():
    model = network().eval()
    images = np.random.default_rng(1).random((3, 1, 20, 20), dtype=np.float32)
    answer, drawn = redraw(model, images, LABELS)
    routed = model(Tensor(images))
    np.testing.assert_array_equal(answer, routed.activations.data > 0.5)
    assert drawn.shape == (3, 3, 1, 20, 20)
    expected = drawn_alone(model, routed.poses.data, 0, 2)
    np.testing.assert_allclose(drawn[0, 1], expected, rtol=1e-5)
    assert not drawn[1].any() and not drawn[0, 2].any() and drawn[2].all()


# ---- batches


def test_batches_of_an_epoch_are_composed_anew_and_repeatable():
    split = compose(data.load("strokes", limit=40).train, 10)
    first, again, later = (
        list(batches(split, 16, seed=3, epoch=epoch, parts=True)) for epoch in (1, 1, 2)
    )
    assert [len(batch[0]) for batch in first] == [16, 16, 8]
    for one, other in zip(first, again, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
        images, labels, parts = one
        np.testing.assert_array_equal(images, parts.max(axis=1))
        assert labels.shape == (len(images), 10) and (labels.sum(axis=1) == 2).all()
    assert not np.array_equal(first[0][1], later[0][1])
    skipped = list(batches(split, 16, seed=3, epoch=1, start=2, parts=True))
    assert all(np.array_equal(a, b) for a, b in zip(skipped[0], first[2], strict=True))


def test_members_are_not_shifted_apart_from_their_picture():
    split = compose(data.load("strokes", limit=40).train, 10)
    with pytest.raises(ValueError, match="omit --shift"):
        batches(split, 16, seed=0, shift=1, parts=True)


# ---- runs


def test_a_run_on_composed_pictures():
    folder = run("--compose", "2", "--epochs", "2")
    _, meta = saved(folder)
    assert meta["preprocessing"]["multi"] is True
    assert meta["model"]["input_shape"] == [1, 36, 36]
    assert (meta["options"]["compose"], meta["options"]["layout"]) == (2, "overlap")
    assert meta["options"]["shift"] == 0
    model = load_model(folder / "best.npz", CPU).eval()
    test = data.load("strokes", limit=40, compose=2).test
    images, labels = test.pick(np.arange(len(test)))
    right = right_answers(model, model(Tensor(images)).activations.data, labels).sum()
    assert summary(folder)["test_right"] == right


def test_validation_pictures_share_no_member_with_training(monkeypatch):
    trainers = []
    monkeypatch.setattr(Trainer, "run", lambda self: trainers.append(self) or original(self))
    run("--compose", "3", "--validation", "10")
    (trainer,) = trainers
    of_parts = [
        {part.single.images[k].tobytes() for k in part.members.ravel()}
        for part in (trainer.training, trainer.validation, trainer.data.test)
    ]
    assert len(of_parts[0]) == 30 and len(of_parts[1]) == 10
    assert not (of_parts[0] & of_parts[1] or of_parts[0] & of_parts[2])


original = Trainer.run


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["overlap", "below"])
def test_an_interrupted_run_on_composed_pictures_goes_on_bit_equal(monkeypatch, layout):
    options = ("--compose", "2", "--layout", layout, "--epochs", "2")
    whole = run(*options, out="whole")
    with monkeypatch.context() as patch:
        send_in_call(patch, Trainer, "_step", 7)
        assert train.main([*TINY, "--out", "cut", *options]) == 130
    assert_equal_runs(go_on("cut"), whole)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ("--model", "capsule-cnn"),
        ("--model", "pooling-cnn", "--layout", "beside"),
        ("--model", "matrix-capsnet", "--loss", "margin"),
        ("--reconstruction", "0", "--shift", "1"),
    ],
)
def test_other_networks_learn_several_classes(options):
    folder = run("--compose", "2", "--limit", "24", *options)
    assert summary(folder)["test_samples"] == 30


@pytest.mark.slow
def test_the_baseline_learns_several_classes_by_binary_cross_entropy(tmp_path):
    images = np.random.default_rng(0).random((30, 4, 4), dtype=np.float32)
    labels = np.stack([images[:, 0, 0] > 0.5, images[:, 1, 1] > 0.5], axis=1)
    np.savez(tmp_path / "x.npz", images=images, labels=labels)
    options = ("--data", str(tmp_path / "x.npz"), "--model", "baseline-cnn", "--limit", "20")
    folder = run(*options, "--device", "cpu")
    assert saved(folder)[1]["options"]["loss"] == "cross-entropy"


@pytest.mark.slow
def test_pictures_of_ones_own_with_none_to_two_classes(tmp_path):
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, (40, 2))
    images = np.zeros((40, 20, 20), np.float32)
    images[:, 4:9, 4:9] += labels[:, :1, None]
    images[:, 12:14, :] += labels[:, 1:, None]
    np.savez(tmp_path / "x.npz", images=np.minimum(images, 1), labels=labels)
    data = ["--data", str(tmp_path / "x.npz"), "--limit", "30", "--shift", "1"]
    data += ["--schedule", "constant", "--warm-up", "0"]  # whatever the number of epochs
    folder = run(*data)
    names = json.loads((folder / "split.json").read_text())
    assert [len(names[part]) for part in ("train", "validation", "test")] == [27, 3, 8]
    at_once = run(*data, "--epochs", "3", out="at once")
    assert_equal_runs(go_on(folder, "--epochs", "3"), at_once)


@pytest.mark.slow
def test_composed_pictures_are_no_single_ones():
    assert not same(parameters(run()), parameters(run("--compose", "2", out="two")))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--layout", "below"), "--layout places the"),
        (("--compose", "1"), "at least 2"),
        (("--compose", "11"), "at most the 10 classes"),
        (("--compose", "2", "--layout", "above"), "choose from"),
        (("--compose", "2", "--loss", "spread"), "--loss spread requires exactly one class"),
        (("--compose", "2", "--loss", "cross-entropy"), "cross-entropy requires exactly one class"),
        (("--compose", "2", "--model", "matrix-capsnet"), "try --loss margin"),
        (("--compose", "2", "--shift", "2"), "omit --shift"),
        (("--compose", "2", "--rotate", "5", "--flip", "both"), "omit --rotate, --flip"),
    ],
)
def test_what_does_not_go_together_is_refused(capsys, options, message):
    arguments = ("--limit", "40", "--device", "cpu", "--out", "run", *options)
    assert message in refused(capsys, *arguments, code=2)


def test_pictures_of_several_classes_are_not_composed(capsys, tmp_path):
    labels = np.random.default_rng(0).integers(0, 2, (30, 3))
    np.savez(
        tmp_path / "x.npz", images=np.random.default_rng(0).random((30, 20, 20)), labels=labels
    )
    arguments = ("--data", str(tmp_path / "x.npz"), "--compose", "2", "--out", "run")
    assert "cannot be composed" in refused(capsys, *arguments, code=2)


@pytest.mark.slow
def test_a_checkpoint_from_before_composition_goes_on():
    folder = run()
    for name in ("last.npz", "best.npz"):
        edit(folder / name, lambda meta: [meta["options"].pop(k) for k in ("compose", "layout")])
    go_on(folder, "--epochs", "2")


# ---- on a device


@pytest.mark.parametrize("decoder", ["0.0005", "0"])
def test_a_step_with_several_classes_does_not_wait_for_the_device(
    strict_cupy, monkeypatch, decoder
):
    waits, step = [], Trainer._step

    def counted(self, *batch):
        strict_cupy.host_syncs.clear()
        step(self, *batch)
        waits.append(dict(strict_cupy.host_syncs))

    monkeypatch.setattr(Trainer, "_step", counted)
    run("--compose", "2", "--device", "gpu", "--reconstruction", decoder)
    assert waits == [{}] * 5


@pytest.mark.slow
def test_the_device_learns_the_same(strict_cupy):
    options = ("--compose", "2", "--precision", "float64")
    here = parameters(run(*options))
    there = parameters(run(*options, "--device", "gpu", out="there"))
    for name in here:
        np.testing.assert_allclose(there[name], here[name], rtol=1e-6, atol=1e-9)
