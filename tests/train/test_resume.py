"""Reproducible runs: seeds, patience, interrupts, resuming, and runs that must not be resumed."""

import os
import re
import shlex
import signal
from pathlib import Path

import numpy as np
import pytest
from thinning import thinned, thinned_rows
from tiny_runs import (
    TINY,
    assert_equal_runs,
    edit,
    finish,
    go_on,
    history,
    parameters,
    refused,
    run,
    same,
    saved,
    send_in_call,
    start,
    summary,
)

from minicaps import data, models
from minicaps.backend import choose_device
from minicaps.cli import signals
from minicaps.nn import BatchNorm2d, Dropout
from minicaps.runs import checkpoint
from minicaps.runs.inference import evaluate
from minicaps.train import __main__ as train
from minicaps.train import trainer
from minicaps.train.trainer import Trainer

CPU = choose_device("cpu")


# ---- reproducible runs


def test_equal_seeds_train_bit_equal_and_others_do_not():
    first = run()
    assert_equal_runs(run(out="again"), first)
    assert not same(parameters(run("--seed", "1", out="other")), parameters(first))


VARIANTS = {
    "default": (),
    "shifted": ("--shift", "2"),
    "augmented": (
        *("--shift", "1", "--rotate", "20", "--zoom", "0.2"),
        *("--flip", "both", "--brightness", "0.3"),
    ),
    "sgd, clipped": ("--optimizer", "sgd", "--learning-rate", "0.1", "--clip", "0.05"),
    "decay, constant": ("--weight-decay", "0.1", "--schedule", "constant"),
    "float64": ("--precision", "float64", "--reconstruction", "0"),
    "spread": ("--loss", "spread"),
    "matrix capsules": ("--model", "matrix-capsnet", "--limit", "20", "--batch-size", "4"),
}
variants = pytest.mark.parametrize("options", thinned(VARIANTS.values()), ids=VARIANTS)


@variants
def test_four_epochs_are_two_and_two(options):
    straight = run("--epochs", "4", *options, out="straight")
    folder = run("--epochs", "2", *options)
    assert_equal_runs(go_on(folder, "--epochs", "4"), straight)
    assert len((folder / "metrics.csv").read_text().splitlines()) == 5


class Forgetful(models.CapsNet):
    """Small network with dropout and batch norm."""

    def __init__(self, input_shape, classes, *, preset="small", dropout=0.5, seed=0):
        super().__init__(input_shape, classes, preset=preset, decoder=False, seed=seed)
        self.dropout, self.norm = Dropout(dropout), BatchNorm2d(input_shape[0])

    def forward(self, images):
        return super().forward(self.dropout(self.norm(images)))


@pytest.mark.slow
def test_what_is_dropped_is_dropped_again(monkeypatch, capsys):
    monkeypatch.setitem(models.MODELS, "forgetful", Forgetful)
    options = ("--epochs", "2", "--model", "forgetful")
    straight = run(*options, out="straight")
    assert_equal_runs(go_on(run(*options, "--epochs", "1"), "--epochs", "2"), straight)
    with monkeypatch.context() as patch:
        send_in_call(patch, Trainer, "_step", 8)
        command = interrupted(capsys, *options)
    assert train.main(command) == 0
    assert_equal_runs("a run", straight)
    other = run(*options, "--dropout", "0", out="other")
    assert not same(parameters(other), parameters(straight))


@pytest.mark.slow
def test_every_step_drops_others(monkeypatch):
    monkeypatch.setitem(models.MODELS, "forgetful", Forgetful)
    masks, forward = [], Dropout.forward

    def watched(self, x):
        y = forward(self, x)
        if self.training and len(x) == 8:  # not the smaller last batch
            masks.append((y.data == 0)[:, 0, 10:18, 10:18].tobytes())
        return y

    monkeypatch.setattr(Dropout, "forward", watched)
    run("--epochs", "2", "--model", "forgetful")
    run("--model", "forgetful", "--seed", "1", out="other")
    assert len(masks) == len(set(masks)) == 12


# ---- patience


def scripted(monkeypatch, right):
    """Make validation find the given numbers of correct predictions, epoch by epoch."""
    script = iter(right)

    def found(model, split, *rest, **keywords):
        if len(split) == 4:
            return 0.5, next(script)
        return evaluate(model, split, *rest, **keywords)

    monkeypatch.setattr(trainer, "evaluate", found)


@pytest.mark.parametrize(
    ("patience", "right", "epochs"),
    thinned_rows(
        [
            ("1", [1, 0], 2),
            ("2", [1, 0, 1, 4], 3),  # equal accuracy is not an improvement
            ("2", [1, 0, 2, 1, 0, 4], 5),  # each improvement restarts the count
            ("2", [1, 2, 3, 4, 4, 4], 6),
            ("5", [1, 0, 0, 0, 0, 0], 6),
        ],
        [("2", [1, 0, 1, 4], 3)],
    ),
)
def test_a_run_stops_when_patience_is_lost(monkeypatch, capsys, patience, right, epochs):
    scripted(monkeypatch, right)
    found = summary(run("--epochs", "6", "--patience", patience))
    assert found["epochs"] == len(history("run")) == epochs
    assert found["best_epoch"] == right.index(max(right[:epochs])) + 1
    assert found["stopped_early"] == (epochs < 6)
    said = capsys.readouterr().out.splitlines()[0]
    told = f", stopped after epoch {epochs} because validation no longer improved."
    assert said.endswith(told) == (epochs < 6)


@pytest.mark.slow
def test_patience_changes_nothing_before_it_is_lost(monkeypatch):
    with monkeypatch.context() as patch:
        scripted(patch, [1, 0, 0, 0])
        stopped = run("--epochs", "4", "--patience", "2", out="stopped")
    with monkeypatch.context() as patch:
        scripted(patch, [1, 0, 0])
        assert same(parameters(stopped), parameters(run("--epochs", "3")))


@pytest.mark.slow
def test_a_run_that_lost_patience_goes_on_only_with_more_of_it(monkeypatch):
    right = [1, 0, 0, 0, 2]
    with monkeypatch.context() as patch:
        scripted(patch, right)
        straight = run("--epochs", "5", "--patience", "4", out="straight")
    scripted(monkeypatch, right)
    folder = run("--epochs", "4", "--patience", "2")
    assert summary(folder)["epochs"] == 3
    before = saved(folder)[0]
    go_on(folder, "--epochs", "5")
    assert (summary(folder)["epochs"], summary(folder)["stopped_early"]) == (3, True)
    assert same(saved(folder)[0], before)
    assert_equal_runs(go_on(folder, "--epochs", "5", "--patience", "4"), straight)


@pytest.mark.slow
def test_an_interrupted_run_keeps_its_patience(monkeypatch, capsys):
    options, right = ("--epochs", "6", "--patience", "2"), [2, 1, 0, 0, 0, 0]
    with monkeypatch.context() as patch:
        scripted(patch, right)
        straight = run(*options, out="straight")
    scripted(monkeypatch, right)
    with monkeypatch.context() as patch:
        send_in_call(patch, Trainer, "_step", 8)
        command = interrupted(capsys, *options)
    assert train.main(command) == 0
    assert_equal_runs("a run", straight)
    assert summary("a run")["epochs"] == 3


# ---- interrupts


def interrupted(capsys, *options, code=130):
    """Run until the signal arrives; return the command that the message gives for resuming."""
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    assert train.main([*TINY, "--out", "a run", *options]) == code
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before
    said = capsys.readouterr().err.splitlines()
    assert said[-2] == "minicaps.train: stopped and saved. Resume with:"
    words = shlex.split(said[-1])
    assert words[:3] == ["python", "-m", "minicaps.train"]
    return words[3:]


# Two epochs of five steps each, with validation after each epoch and a test at the end.
MOMENTS = {
    "in the first step": (Trainer, "_step", 1),
    "in the middle of an epoch": (Trainer, "_step", 8),
    "in the last step of an epoch": (Trainer, "_step", 5),
    "in validation": (trainer, "evaluate", 2),
    "in the test": (trainer, "evaluate", 3),
}


@pytest.mark.parametrize("moment", thinned(MOMENTS.values()), ids=MOMENTS)
def test_an_interrupted_run_goes_on_bit_equal(monkeypatch, capsys, moment):
    options = ("--epochs", "2", "--schedule", "cosine")
    straight = run(*options, out="straight")
    with monkeypatch.context() as patch:
        send_in_call(patch, *moment)
        command = interrupted(capsys, *options)
    assert command == ["--resume", "a run"]
    assert train.main(command) == 0
    assert_equal_runs("a run", straight)


@variants
def test_an_interrupted_epoch_goes_on_bit_equal(monkeypatch, capsys, options):
    straight = run("--epochs", "2", *options, out="straight")
    with monkeypatch.context() as patch:
        send_in_call(patch, Trainer, "_step", 7, signal.SIGTERM)
        command = interrupted(capsys, "--epochs", "2", *options, code=143)
    assert saved("a run")[1]["progress"]["batch"] == 2
    assert train.main(command) == 0
    assert_equal_runs("a run", straight)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_stop_a_process_and_another_goes_on_bit_equal(number):
    straight = run("--epochs", "30", out="straight")
    process = start(*TINY[:-1], "--epochs", "30", "--out", "run")  # not quiet
    for line in process.stdout:  # arrives at once, although it is a pipe
        if line.startswith("epoch 1/30"):
            process.send_signal(number)
            break
    code, _, err = finish(process)
    assert code == 128 + number
    assert err.endswith("python -m minicaps.train --resume run\n")
    progress = saved("run")[1]["progress"]
    assert 1 <= progress["epoch"] < 30
    code, out, _ = finish(start("--resume", "run"))
    assert code == 0
    assert re.search(r"^epoch 30/30 .*\nTest accuracy", out, re.MULTILINE)
    assert_equal_runs("run", straight)


def test_a_second_ctrl_c_stops_at_once_and_leaves_the_last_good_file(monkeypatch, capsys):
    folder = run("--epochs", "1")
    before = (folder / "last.npz").read_bytes()
    send_in_call(monkeypatch, Trainer, "_step", 3)
    send_in_call(monkeypatch, np, "savez", 1)
    monkeypatch.setattr(signals, "TOGETHER", 0)  # seconds
    capsys.readouterr()
    assert train.main(["--resume", "run", "--epochs", "2", "--quiet"]) == 130
    assert capsys.readouterr().err == "minicaps.train: interrupted\n"
    assert (folder / "last.npz").read_bytes() == before
    assert not list(folder.glob("*.part"))


def test_ctrl_c_while_data_is_loaded(monkeypatch, capsys):
    send_in_call(monkeypatch, data, "load", 1)
    assert train.main([*TINY, "--out", "run"]) == 130
    assert capsys.readouterr().err == "minicaps.train: interrupted\n"
    assert not Path("run").exists()


def test_a_finished_run_is_resumed_to_the_same_result():
    folder = run()
    before = saved(folder)[0]
    result = summary(folder)["test_right"]
    assert summary(go_on(folder))["test_right"] == result
    assert same(saved(folder)[0], before)


# ---- what must not be resumed


@pytest.mark.parametrize(
    ("name", "value", "numbers"),
    thinned_rows(
        [
            ("input_shape", [1, 36, 36], ("[1, 36, 36]", "[1, 28, 28]")),
            ("input_shape", [3, 28, 28], ("[3, 28, 28]", "[1, 28, 28]")),
            ("classes", 11, ("11", "10")),
        ]
    ),
)
def test_a_run_on_other_data_is_refused_with_both_numbers(capsys, name, value, numbers):
    path = run() / "last.npz"
    edit(path, lambda meta: meta["model"].update({name: value}))
    capsys.readouterr()
    said = refused(capsys, "--resume", "run", code=2)
    assert name in said
    assert all(number in said for number in numbers)


@pytest.mark.parametrize(
    "change",
    thinned(
        [
            lambda meta: meta["progress"].pop("batch"),
            lambda meta: meta["model"].pop("classes"),
            lambda meta: meta["options"].update(optimizer="foo"),
            lambda meta: meta["options"].update(learning_rate="fast"),
            lambda meta: meta.update(progress={}),
            lambda meta: meta.update(options=None),
            lambda meta: meta["options"].update(limit="many"),
            lambda meta: meta["options"].update(learning_rate=-1),
            lambda meta: meta["options"].update(batch_size=0),
            lambda meta: meta["options"].update(epochs=[6, 7]),
            lambda meta: meta["options"].update(shift={"x": 1}),
            lambda meta: meta["options"].update(precision="float16"),
            lambda meta: meta["options"].update(invented=3),
            lambda meta: meta.update(options=["epochs"]),
        ],
        3,
    ),
)
def test_a_changed_checkpoint_is_refused_in_a_sentence(capsys, change):
    path = run() / "last.npz"
    edit(path, change)
    capsys.readouterr()
    said = refused(capsys, "--resume", "run", code=1)
    assert "last.npz does not fit this version of minicaps" in said


def test_what_is_no_run_cannot_be_resumed(capsys):
    Path("file").touch()
    Path("empty").mkdir()
    Path("folder/last.npz").mkdir(parents=True)
    checkpoint.save("folder/other.npz", {}, {})
    Path("lesson").mkdir()
    checkpoint.save("lesson/last.npz", {}, {"model": {}})
    for folder in ("nowhere", "file", "empty", "folder", "lesson"):
        said = refused(capsys, "--resume", folder, code=1)
        assert said.startswith("minicaps.train: ")
        assert f"{folder}/last.npz" in said
    assert os.listdir("empty") == []


@pytest.mark.slow
def test_a_checkpoint_from_before_an_option_came_has_its_default():
    straight = run("--epochs", "2", out="straight")
    path = run() / "last.npz"
    edit(path, lambda meta: meta["options"].pop("clip"))
    assert_equal_runs(go_on("run", "--epochs", "2"), straight)


@pytest.mark.slow
def test_a_run_that_is_done_says_how_to_go_on(capsys):
    assert train.main([*TINY[:-1], "--out", "run"]) == 0  # not quiet
    assert train.main(["--resume", "run", "--epochs", "2"]) == 0
    assert "epochs are done" not in capsys.readouterr().out
    assert train.main(["--resume", "run"]) == 0
    assert "all 2 epochs are done: to train more, raise --epochs" in capsys.readouterr().out


@pytest.mark.slow
def test_fewer_epochs_than_done_are_refused(capsys):
    run("--epochs", "2")
    capsys.readouterr()
    assert "2 epochs are already done" in refused(
        capsys, "--resume", "run", "--epochs", "1", code=2
    )
