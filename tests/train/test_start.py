"""Training runs that start from the parameters of another run."""

import json
from pathlib import Path

import numpy as np
import pytest
from own_files import SIZE, noise
from thinning import thinned, thinned_rows
from tiny_runs import TINY, go_on, parameters, refused, run, same, summary

from minicaps import Tensor
from minicaps.runs import load_model
from minicaps.train import __main__ as train

STILL = ("--learning-rate", "1e-30")  # a step too small to survive rounding


@pytest.mark.slow
def test_a_run_starts_from_the_best_parameters_of_another():
    first = run("--model", "capsule-cnn", "--iterations", "2")
    second = run(
        "--model", "capsule-cnn", "--iterations", "3", *STILL, "--start-from", str(first), out="two"
    )
    assert same(parameters(second), parameters(first))
    third = run("--model", "capsule-cnn", "--iterations", "2", *STILL, out="fresh")
    assert not same(parameters(third), parameters(first))


@pytest.mark.slow
def test_few_pictures_are_enough_for_what_has_learned_already(capsys):
    assert train.main([*TINY[:-1], "--out", "run"]) == 0  # not quiet
    assert "few to learn much" in capsys.readouterr().out
    assert train.main([*TINY[:-1], "--start-from", "run", "--out", "two"]) == 0
    assert "few to learn much" not in capsys.readouterr().out


@pytest.mark.slow
def test_the_checkpoint_itself_may_be_named_too():
    first = run()
    second = run("--start-from", str(first / "best.npz"), *STILL, out="two")
    assert same(parameters(second), parameters(first))


@pytest.mark.slow
def test_it_goes_on_by_itself_when_the_other_run_is_gone():
    first = run()
    second = run("--start-from", str(first), "--epochs", "1", out="two")
    for file in first.iterdir():
        file.unlink()
    assert summary(go_on(second, "--epochs", "2"))["epochs"] == 2


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    thinned_rows(
        [
            (
                ("--start-from", "run", "--model", "pooling-cnn"),
                2,
                "run/best.npz contains a different network: model is capsnet in the checkpoint,"
                " but pooling-cnn in this run; give the same options",
            ),
            (
                ("--start-from", "run", "--reconstruction", "0", "--precision", "float64"),
                2,
                "network: precision is float32 in the checkpoint, but float64 in this run; decoder"
                " is True in the checkpoint, but False in this run; give",
            ),
            (("--start-from", "nowhere"), 1, "no checkpoint nowhere: give the folder of a run"),
            (
                ("--start-from", "."),
                1,
                ". has no best.npz: it contains runs; choose one of them, such as run",
            ),
        ]
    ),
)
def test_what_does_not_fit_is_refused(capsys, arguments, code, message):
    run()
    capsys.readouterr()
    assert message in refused(capsys, *TINY, *arguments, "--out", "two", code=code)
    assert not Path("two").exists()


# ---- other classes, other images


def named(path, classes, *, size=SIZE, count=8, start=0):
    """Write noise of the given classes to an .npz file; return the options to train on it."""
    labels = np.repeat(np.arange(len(classes)), count)
    images = noise(start, len(labels), *size)
    np.savez(path, images=images, labels=labels, class_names=classes)
    return ("--data", str(path), "--limit", str(6 * len(classes)), "--validation", "3")


def test_other_classes_start_new_and_everything_else_is_taken_over(capsys):
    first = run(*named("a.npz", ["cat", "dog", "eel"]))
    capsys.readouterr()
    arguments = [*named("b.npz", ["fox", "owl"], start=90), *STILL, "--start-from", str(first)]
    assert train.main([*TINY[:-1], *arguments, "--out", "two"]) == 0
    old, new = parameters(first), parameters("two")
    fresh = parameters(run(*named("b.npz", ["fox", "owl"], start=90), *STILL, out="fresh"))
    changed = {name for name in new if not np.array_equal(old[name], new[name])}
    assert changed == {"classes.weight", "decoder.layers.0.weight"}
    assert all(np.array_equal(new[name], fresh[name]) for name in changed)
    kept = len(new) - 2
    note = f"Note: {kept} of {len(new)} parameter arrays are copied from {first}/best.npz;"
    said = capsys.readouterr().out
    assert f"{note} newly initialized: classes.weight, decoder.layers.0.weight\n" in said
    go_on("two", "--epochs", "2")


@pytest.mark.parametrize("model", thinned(("capsnet", "capsule-cnn", "dense-cnn"), ("dense-cnn",)))
def test_the_same_classes_in_another_order_are_matched_by_name(model):
    """The network then gives each image the same scores under the same names."""
    first = run("--model", model, *named("a.npz", ["cat", "dog", "eel"]))
    other = named("b.npz", ["eel", "cat", "dog"], start=90)
    second = run("--model", model, *other, *STILL, "--start-from", str(first), out="two")
    networks = [load_model(folder) for folder in (first, second)]
    shape = networks[0].config["input_shape"]
    images = np.random.default_rng(0).random((4, *shape), dtype=np.float32)
    scores = [
        {name: network(Tensor(images)).activations.numpy()[:, k] for k, name in enumerate(names)}
        for network in networks
        for names in [network.class_names]
    ]
    assert scores[0].keys() == scores[1].keys()
    for name, one in scores[0].items():
        np.testing.assert_allclose(scores[1][name], one, rtol=1e-4, atol=1e-6)


def test_classes_are_matched_by_name_even_if_the_routing_differs():
    first = run("--iterations", "2", *named("a.npz", ["cat", "dog"]))
    other = named("b.npz", ["dog", "cat"], start=90)
    second = run("--iterations", "3", *other, *STILL, "--start-from", str(first), out="two")
    old, new = (parameters(folder)["classes.weight"] for folder in (first, second))
    assert np.array_equal(new, old[:, ::-1])


def test_known_classes_are_kept_beside_new_ones(capsys):
    first = run(*named("a.npz", ["cat", "dog"]))
    capsys.readouterr()
    arguments = [*named("b.npz", ["ant", "dog", "cat"], start=90), *STILL]
    assert train.main([*TINY[:-1], *arguments, "--start-from", str(first), "--out", "two"]) == 0
    old, new = (parameters(folder)["classes.weight"] for folder in (first, "two"))
    (axis,) = np.flatnonzero(np.array(old.shape) != new.shape)
    old, new = (np.moveaxis(weights, axis, 0) for weights in (old, new))
    assert np.array_equal(new[1], old[1]) and np.array_equal(new[2], old[0])
    said = capsys.readouterr().out
    assert "matched by name (dog, cat); newly initialized for the other classes: classes." in said


def test_layers_that_suit_images_of_another_size_are_taken_over():
    first = run(*named("a.npz", ["cat", "dog"]))
    square = (SIZE[1], SIZE[1])
    arguments = (*named("b.npz", ["cat", "dog"], size=square), *STILL, "--start-from", str(first))
    second = run(*arguments, out="two")
    old, new = parameters(first), parameters(second)
    assert np.array_equal(old["convolutions.0.weight"], new["convolutions.0.weight"])
    assert old["classes.weight"].shape != new["classes.weight"].shape


# ---- images that the other run was trained on


def test_test_images_that_were_training_images_are_told(capsys):
    data = named("a.npz", ["cat", "dog"], count=20)[:2]
    first = run(*data, "--limit", "24", "--seed", "0")
    second = run(*data, "--limit", "24", "--seed", "1", "--start-from", str(first), out="two")
    trained = set(json.loads((first / "split.json").read_text())["train"])
    parts = json.loads((second / "split.json").read_text())
    seen = [len(trained & set(parts[kind])) for kind in ("test", "validation")]
    assert min(seen) > 0
    said = (
        f"{first}/best.npz was trained on {seen[0]} of {len(parts['test'])} test images and"
        f" {seen[1]} of {len(parts['validation'])} validation images of this run"
    )
    assert said in capsys.readouterr().err and said in summary(second)["warnings"][0]


def test_copies_of_training_images_are_told_by_their_pixels(capsys):
    data = named("a.npz", ["cat", "dog"], count=20)[:2]
    first = run(*data, "--limit", "24")
    Path("a.npz").rename("b.npz")
    second = run(
        "--data", "b.npz", "--limit", "24", "--seed", "1", "--start-from", "run", out="two"
    )
    assert "was trained on" in capsys.readouterr().err
    path = first / "split.json"  # an older run has no fingerprints
    parts = json.loads(path.read_text())
    assert len(parts.pop("train_fingerprints")) == len(parts["train"])
    path.write_text(json.dumps(parts))
    run("--data", "b.npz", "--limit", "24", "--seed", "1", "--start-from", "run", out="three")
    assert "was trained on" not in capsys.readouterr().err
    Path("b.npz").rename("a.npz")
    run(*data, "--limit", "24", "--seed", "1", "--start-from", "run", out="four")
    assert "was trained on" in capsys.readouterr().err  # by their names
    assert summary(second)["warnings"]


def test_the_same_split_has_no_images_seen_before(capsys):
    data = named("a.npz", ["cat", "dog"], count=20)[:2]
    first = run(*data, "--limit", "24")
    run(*data, "--limit", "24", "--start-from", str(first), out="two")
    assert "was trained on" not in capsys.readouterr().err
