"""Options of `python -m minicaps.train`: each one is documented, checked, and takes effect."""

import argparse

import numpy as np
import pytest
from idx_files import FILES, Tiny, isolate
from thinning import thinned, thinned_rows
from tiny_runs import TINY, history, parameters, run, same, saved, summary

from minicaps import data, models
from minicaps.runs.configuration import Options
from minicaps.train import __main__ as train
from minicaps.train.options import (
    CHANGEABLE,
    DEFAULTS,
    NO_AUGMENTATION,
    OF_THE_MODEL,
    complete,
    make_parser,
)
from minicaps.train.trainer import Trainer

ACTIONS = [a for a in make_parser()._actions if not isinstance(a, argparse._HelpAction)]


def flag(name):
    return "--" + name.replace("_", "-")


# ---- documented


def test_help_explains_every_option_on_two_screens(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as stopped:
        train.main(["--help"])
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) <= 80
    assert max(map(len, shown.splitlines())) <= 80
    for group in ("data", "model", "optimization", "run"):
        assert f"\n\n{group}" in shown
    for action in ACTIONS:
        assert action.option_strings == [flag(action.dest)]
        assert flag(action.dest) in shown
        assert len(action.help) > 10


def test_help_shows_the_defaults_and_the_choices():
    assert {a.dest for a in ACTIONS} == DEFAULTS.keys()
    for action in ACTIONS:
        default = DEFAULTS[action.dest]
        if default is not None and action.nargs != 0:
            assert action.help.endswith(f"[{default}]")
        for choice in action.choices or ():
            assert choice in action.help


def test_defaults_pass_the_checks_of_the_options():
    for action in ACTIONS:
        default = DEFAULTS[action.dest]
        if default is not None and action.nargs != 0:
            given = make_parser().parse_args([flag(action.dest), str(default)])
            assert getattr(given, action.dest) == default


# ---- checked

NO_NUMBERS = ("nan", "-inf", "ten", "")
NO_COUNTS = (*NO_NUMBERS, "inf", "-1", "1.5")
NONSENSE = {
    "data": ("paperr", "nowhere/there", ""),
    "size": ("0", "0x5", "5x", "x", "5x5x5", "1e2", "100000", *NO_COUNTS),
    "limit": ("0", *NO_COUNTS),
    "compose": ("0", "1", *NO_COUNTS),
    "layout": ("above", ""),
    "validation": ("1.0", "1e3", "inf", "-1", "-0.1", *NO_NUMBERS),
    "shift": NO_COUNTS,
    "rotate": ("-1", "181", "inf", *NO_NUMBERS),
    "zoom": ("-0.1", "1", "inf", *NO_NUMBERS),
    "brightness": ("-0.1", "1", "inf", *NO_NUMBERS),
    "balance": ("maybe", "0", "True", ""),
    "iterations": ("0", *NO_COUNTS),
    "inverse_temperature": ("0", "-1", "inf", "1e999", *NO_NUMBERS),
    "dropout": ("1", "-0.1", "inf", *NO_NUMBERS),
    "reconstruction": ("-1", "inf", "1e999", *NO_NUMBERS),
    "patience": ("0", *NO_COUNTS),
    "seeds": ("0", "1", *NO_COUNTS),
    "epochs": ("0", *NO_COUNTS),
    "absent_weight": ("0", "-1", "inf", *NO_NUMBERS),
    "batch_size": ("0", *NO_COUNTS),
    "learning_rate": ("0", "-1", "inf", "1e999", "1e-999", *NO_NUMBERS),
    "warm_up": NO_COUNTS,
    "restarts": NO_COUNTS,
    "decay": ("0", "-1", "1.01", "inf", *NO_NUMBERS),
    "weight_decay": ("-1", "inf", *NO_NUMBERS),
    "clip": ("0", "-1", "inf", *NO_NUMBERS),
    "seed": NO_COUNTS,
}
FOLDERS = {"data_dir", "out", "resume", "start_from"}  # any text may name one
SWITCHES = {a.dest for a in ACTIONS if a.nargs == 0}  # take no value
NONSENSE |= {a.dest: ("paperr", "0", "") for a in ACTIONS if a.choices}


@pytest.fixture
def no_work(monkeypatch, tmp_path):
    """Make the test fail if data is loaded or anything is written."""

    def load(*_, **__):
        raise AssertionError("work before the options are checked")

    monkeypatch.setattr(data, "load", load)
    yield
    assert list(tmp_path.iterdir()) == []


def refusal(capsys, *arguments):
    """Return the error message for wrong usage."""
    with pytest.raises(SystemExit) as stopped:
        train.main(list(arguments))
    assert stopped.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    usage, message = said.err.splitlines()
    assert usage == "usage: python -m minicaps.train [options]"
    return message.removeprefix("python -m minicaps.train: error: ")


@pytest.mark.parametrize("name", NONSENSE)
def test_senseless_values_are_refused_before_any_work(no_work, capsys, name):
    for value in NONSENSE[name]:
        said = refusal(capsys, f"{flag(name)}={value}")
        assert said.startswith(f"argument {flag(name)}: ")
        assert repr(value) in said
        assert any(expected in said for expected in ("choose from", "must be a", "must be yes"))


def test_every_option_is_in_the_table_of_nonsense():
    assert NONSENSE.keys() | FOLDERS | SWITCHES == DEFAULTS.keys()
    of_the_data = {"multi_label", "skip_bad"}
    assert {"quiet", "batch_norm", "shared", "tf32", "estimate"} | of_the_data == SWITCHES


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--decay", "0.5", "--schedule", "cosine"], "--decay applies to --schedule exp"),
        (
            ["--model", "baseline-cnn", "--loss", "spread"],
            "the spread loss needs scores from 0 to 1, but those of baseline-cnn are logits: choose"
            " --loss cross-entropy or margin",
        ),
        (
            ["--model", "matrix-capsnet", "--preset", "medium"],
            "matrix-capsnet has no preset medium: choose paper, small",
        ),
        (["--absent-weight", "0.5", "--loss", "spread"], "applies to --loss margin only, not spr"),
        (["--patience", "6"], "--patience 6 has no effect in 6 epochs: lower it"),
        (["--data-dir", "."], "strokes are drawn, not read: leave --data-dir out"),
        (["--tf32", "--precision", "float64"], "applies to products of float32, not of float64"),
        (["--batchsize", "3"], "unrecognized arguments: --batchsize 3"),
        (["runs"], "unrecognized arguments: runs"),
        (["--epochs"], "argument --epochs: expected one argument"),
    ],
)
def test_what_does_not_go_together_is_refused_before_any_work(no_work, capsys, arguments, said):
    assert said in refusal(capsys, *arguments)


def given(name):
    """Return the option with an allowed value."""
    value = DEFAULTS[name]
    values = {"dropout": 0.1, "out": "x", "size": 30, "seeds": 2, "layout": "below"}
    value = (values | {"frames": "all"}).get(name, value)
    value = CHANGES_WHAT_IS_LEARNED.get(name, value)
    return [flag(name)] if value == "True" or name in SWITCHES else [flag(name), str(value)]


@pytest.mark.parametrize("model", models.MODELS)
def test_a_model_takes_the_options_that_its_class_has(no_work, capsys, model):
    arguments = models.options_of(model)
    for name, argument in OF_THE_MODEL.items():
        if argument in arguments:
            parsed = vars(make_parser().parse_args(["--model", model, *given(name)]))
            assert complete(parsed).to_dict()[name] == parsed[name]
        else:
            said = refusal(capsys, "--model", model, *given(name))
            assert said == f"{model} has no {flag(name)}: leave it out, or choose another --model"
            assert complete({"model": model}).to_dict()[name] is None


@pytest.mark.parametrize("name", sorted(DEFAULTS.keys() - CHANGEABLE))
def test_a_resumed_run_keeps_its_options(no_work, capsys, name):
    said = refusal(capsys, "--resume", "x", *given(name))
    assert said == f"{flag(name)} cannot change when a run is resumed: start a new run"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--skip-bad"], "strokes can be read in one way only: leave out --skip-bad"),
        (["--shift", "28"], "shift must be 0 to 27 pixels for these images, got 28"),
        (["--validation", "40"], "would take 40 of 40 training samples"),
        (["--validation", "0.01"], "would take 0 of 40 training samples"),
        (
            ["--validation", "0", "--epochs", "3", "--patience", "2"],
            "--patience needs validation images",
        ),
        (["--routing", "distance", "--update", "recompute"], "distance routing has no option"),
        (
            ["--iterations", "1", "--update", "recompute"],
            "update 'recompute' has no effect in 1 it",
        ),
        (
            ["--iterations", "1", "--gradient", "stop"],
            "gradient 'stop' has no effect in 1 iteration",
        ),
        (["--routing", "learned", "--iterations", "2"], "learned routing has no option iterations"),
        (["--gradient", "implicit"], "implicit"),  # accumulate has no fixed point
        (["--model", "matrix-capsnet", "--gradient", "implicit"], "implicit"),
        (["--limit", "1"], "would take 0 of 1 training samples"),
        (["--limit", "10001"], "limit 10,001 exceeds the 10,000 training samples of strokes"),
    ],
)
def test_what_does_not_fit_the_data_is_refused_before_training(tmp_path, capsys, arguments, said):
    assert said in refusal(capsys, *TINY, "--out", "run", *arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "training", "validation"),
    thinned_rows(
        [
            (["--limit", "1", "--validation", "0"], 1, 0),
            (["--limit", "2", "--validation", "0.5"], 1, 1),
            (["--limit", "9", "--validation", "1"], 8, 1),
            (["--limit", "9", "--validation", "0.0"], 9, 0),
            (["--limit", "9", "--batch-size", "100000"], 8, 1),
        ],
        2,
    ),
)
def test_the_smallest_and_the_largest_run(capsys, arguments, training, validation):
    assert train.main([*TINY[:-1], "--out", "run", *arguments]) == 0
    said = f"Data: strokes, {training:,} training, {validation:,} validation, 30 test images"
    assert said in capsys.readouterr().out


# ---- effective: each option changes what is learned, or at least what is done


CHANGES_WHAT_IS_LEARNED = {
    "limit": "39",
    "compose": "2",
    "validation": "5",
    "shift": "1",
    "rotate": "10.0",
    "zoom": "0.2",
    "flip": "horizontal",
    "brightness": "0.2",
    "invert": "yes",
    "balance": "True",
    "preset": "paper",
    "routing": "learned",
    "update": "recompute",
    "iterations": "2",
    "gradient": "stop",
    "inverse_temperature": "2.0",
    "squash": "tanh",
    "primary_squash": "tanh",
    "shared": "True",
    "pooling": "max",
    "batch_norm": "True",
    "reconstruction": "0.5",
    "loss": "spread",
    "absent_weight": "0.25",
    "epochs": "2",
    "batch_size": "9",
    "optimizer": "sgd",
    "learning_rate": "0.01",
    "schedule": "constant",
    "decay": "0.1",
    "warm_up": "3",
    "weight_decay": "0.1",
    "clip": "0.01",
    "seed": "1",
    "precision": "float64",
}


@pytest.mark.parametrize("name", thinned(CHANGES_WHAT_IS_LEARNED, ("learning_rate", "seed")))
def test_the_option_changes_what_is_learned(monkeypatch, name):
    small = models.CAPSNET_PRESETS["small"]
    monkeypatch.setitem(models.CAPSNET_PRESETS, "paper", small | {"capsule_size": 5})
    model = ["--model", "pooling-cnn" if name in ("batch_norm", "pooling") else "capsnet"]
    folder = run(*model, *given(name), out="changed")
    assert str(saved(folder)[1]["options"][name]) == CHANGES_WHAT_IS_LEARNED[name]
    assert not same(parameters(folder), parameters(run(*model)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("routing", ()),
        ("update", ()),
        ("squash", ()),
        ("gradient", ("--update", "recompute")),
        ("loss", ()),
        ("optimizer", ()),
        ("schedule", ()),
    ],
)
def test_every_choice_learns_something_else(name, others):
    (action,) = (a for a in ACTIONS if a.dest == name)
    folders = [run(flag(name), choice, *others, out=choice) for choice in action.choices]
    for k, folder in enumerate(folders):
        for other in folders[:k]:
            assert not same(parameters(folder), parameters(other)), (folder, other)


@pytest.fixture
def mnist(monkeypatch, tmp_path):
    """Create a tiny MNIST in a folder that only --data-dir names."""
    isolate(monkeypatch, tmp_path)
    random = np.random.default_rng(0)
    arrays = [
        random.integers(0, 256, (50, 28, 28), dtype=np.uint8),
        random.integers(0, 10, 50, dtype=np.uint8),
        random.integers(0, 256, (20, 28, 28), dtype=np.uint8),
        random.integers(0, 10, 20, dtype=np.uint8),
    ]
    Tiny(monkeypatch, "mnist", dict(zip(FILES, arrays, strict=True))).write(tmp_path / "mine")


@pytest.mark.slow
def test_data_and_data_dir(mnist):
    folder = run("--data", "mnist", "--data-dir", "mine")
    assert summary(folder)["test_samples"] == 20
    options = saved(folder)[1]["options"]
    assert (options["data"], options["shift"]) == ("mnist", 2)
    same_shift = run("--data", "mnist", "--data-dir", "mine", "--shift", "2", out="same")
    no_shift = run("--data", "mnist", "--data-dir", "mine", "--shift", "0", out="other")
    assert same(parameters(folder), parameters(same_shift))
    assert not same(parameters(folder), parameters(no_shift))


def ink_of_batches(monkeypatch, *options):
    """Return the ink of the images that a run without steps sees, in order, one row per epoch."""
    ink = []
    with monkeypatch.context() as patch:
        patch.setattr(
            Trainer, "_step", lambda self, images, labels: ink.extend(images.sum((1, 2, 3)))
        )
        folder = run("--epochs", "2", "--shift", "0", *options, out="run" + "".join(options))
    return np.array(ink).reshape(2, -1), parameters(folder)


@pytest.mark.slow
def test_the_seed_is_that_of_data_order_validation_and_initial_values(monkeypatch, mnist):
    def both(*options):
        runs = [ink_of_batches(monkeypatch, "--seed", seed, *options) for seed in "01"]
        (ink, start), (other_ink, other_start) = runs
        return ink, other_ink, start, other_start

    ink, other_ink, start, other_start = both("--validation", "0")
    for name in start:
        assert name.endswith("bias") or not np.array_equal(start[name], other_start[name])
    assert set(ink[0]) == set(ink[1])  # each epoch contains all images
    assert set(ink[0]).isdisjoint(other_ink[0])  # the strokes are drawn anew
    fixed = ("--data", "mnist", "--data-dir", "mine")
    ink, other_ink, *_ = both("--validation", "0", *fixed)
    assert set(ink[0]) == set(ink[1]) == set(other_ink[0])
    orders = [ink[0], ink[1], other_ink[0], other_ink[1]]
    assert len({tuple(order) for order in orders}) == 4
    ink, other_ink, *_ = both("--validation", "10", *fixed)
    assert set(ink[0]) == set(ink[1]) != set(other_ink[0])


@pytest.mark.slow
def test_reconstruction_0_trains_without_a_decoder():
    folder = run("--reconstruction", "0")
    assert not any(name.startswith("decoder") for name in parameters(folder))
    assert "reconstruction_loss" not in history(folder)[0]
    assert "reconstruction_loss" in history(run(out="with"))[0]


@pytest.mark.slow
def test_device(strict_cupy):
    assert summary(run("--device", "gpu", out="gpu"))["device"] == "strict stand-in (CuPy)"
    assert summary(run("--device", "auto", out="auto"))["device"] == "strict stand-in (CuPy)"
    assert summary(run("--device", "cpu", out="cpu"))["device"] == "CPU (NumPy)"


def test_every_option_has_a_test_that_it_is_obeyed():
    elsewhere = {"data", "data_dir", "size", "device"}  # above, and in tests/data/test_own.py
    elsewhere.add("layout")  # in tests/models/test_multilabel.py
    elsewhere |= {
        "skip_bad",
        "multi_label",
        "frames",
    }  # in tests/data: test_messy, test_table, test_frames
    others = {"model", "dropout", "patience", "start_from", "tf32", "out", "resume", "quiet"}
    others |= {"seeds", "estimate"}
    others.add("restarts")  # in tests/train/test_defaults.py
    assert CHANGES_WHAT_IS_LEARNED.keys() | elsewhere | others == DEFAULTS.keys()


def test_complete_adds_the_defaults():
    filled = NO_AUGMENTATION | {"out": "x", "learning_rate": 0.003, "loss": "margin"}
    filled |= {"validation": 0.1, "invert": "no"}
    of_the_class = {"routing": "agreement", "squash": "paper", "shared": False}
    assert complete({"out": "x"}).to_dict() == DEFAULTS | filled | of_the_class
    assert complete({"preset": "paper"}).to_dict()["learning_rate"] == 0.001
    assert complete({"model": "capsule-cnn"}).to_dict()["learning_rate"] == 0.001
    for model, loss in (("matrix-capsnet", "spread"), ("baseline-cnn", "cross-entropy")):
        assert complete({"model": model}).to_dict()["loss"] == loss
    assert complete({"preset": "paper", "learning_rate": 0.5}).to_dict()["learning_rate"] == 0.5
    assert complete({"data": "mnist"}).to_dict()["shift"] == 2
    assert complete({"data": "fashion-mnist"}).to_dict()["shift"] == 0
    assert complete({"data": "mnist", "shift": 0}).to_dict()["shift"] == 0
    assert complete({"data": "/own/images"}).to_dict()["invert"] == "auto"


def test_a_flat_dictionary_holds_all_options():
    options = complete({"data": "mnist", "size": [5, 4], "model": "pooling-cnn", "out": "x"})
    assert (options.data.name, options.model.name) == ("mnist", "pooling-cnn")
    flat = options.to_dict()
    assert list(flat) == list(DEFAULTS)
    assert Options.from_dict(flat | {"of a later version": None}) == options
    assert options.replace(seed=3).to_dict() == flat | {"seed": 3}
    assert Options.from_dict({}) == Options()
