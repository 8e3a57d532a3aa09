"""Trainer on a device: copies, waits, TF32, and progress output."""

import itertools
import json
import os
import re
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from thinning import thinned_rows
from tiny_runs import (
    TINY,
    assert_equal_runs,
    go_on,
    parameters,
    refused,
    run,
    saved,
    send_in_call,
    summary,
)

from minicaps.train import __main__ as train
from minicaps.train import progress, trainer
from minicaps.train.trainer import Trainer

GPU = ("--device", "gpu")


def fill(strict_cupy, patch):
    """Leave no room for images on the device."""
    patch.setattr(strict_cupy.cuda.runtime, "memGetInfo", lambda: (1000, 2**31))


# ---- copies and waits


def steps_of(strict_cupy, monkeypatch, *options):
    """Train and return the copies and waits of each step, including the creation of its batch."""
    seen, step = [], Trainer._step

    def counted(self, *batch):
        step(self, *batch)
        seen.append((strict_cupy.host_copies.copy(), strict_cupy.host_syncs.copy()))

    monkeypatch.setattr(Trainer, "_step", counted)
    run(*GPU, *options)
    return [
        (after[0] - before[0], after[1] - before[1]) for before, after in itertools.pairwise(seen)
    ]


@pytest.mark.parametrize(
    ("options", "copies"),
    thinned_rows(
        [
            ((), 1),  # the indices of the images
            (
                ("--shift", "1", "--clip", "1", "--weight-decay", "0.1"),
                2,
            ),  # and their shifts
            (("--precision", "float64", "--optimizer", "sgd"), 1),
            (("--routing", "leaky"), 1),
            (("--routing", "distance", "--loss", "spread"), 1),
            (("--routing", "learned", "--loss", "cross-entropy"), 1),
            (("--update", "spherical", "--gradient", "stop"), 1),
            (("--model", "capsule-cnn", "--batch-norm"), 1),
            (("--model", "pooling-cnn"), 1),
            (("--model", "baseline-cnn"), 2),  # and the dropout mask
            (("--model", "matrix-capsnet", "--batch-norm"), 1),
        ]
    ),
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_a_step_copies_indices_and_waits_for_nothing(
    request, strict_cupy, monkeypatch, options, copies
):
    if "baseline-cnn" in options:
        request.getfixturevalue("specks")
    steps = steps_of(strict_cupy, monkeypatch, *options)
    assert steps == [(Counter(asarray=copies), Counter())] * 4


@pytest.mark.slow
def test_without_room_a_step_copies_pictures_and_labels(strict_cupy, monkeypatch):
    fill(strict_cupy, monkeypatch)
    steps = steps_of(strict_cupy, monkeypatch)
    assert steps == [(Counter(asarray=2), Counter())] * 4


@pytest.mark.slow
def test_room_for_the_pictures_changes_nothing_else(strict_cupy, monkeypatch):
    options = (*GPU, "--shift", "1", "--epochs", "2", "--precision", "float64")
    roomy = run(*options, out="roomy")
    with monkeypatch.context() as patch:
        fill(strict_cupy, patch)
        assert_equal_runs(run(*options, out="narrow"), roomy)
        send_in_call(patch, Trainer, "_step", 7)  # in mid-epoch
        assert train.main([*TINY, *options, "--out", "moved"]) == 130
    assert saved("moved")[1]["progress"]["batch"] == 2
    assert_equal_runs(go_on("moved"), roomy)


@pytest.mark.slow
def test_more_steps_wait_no_more(strict_cupy):
    """A run waits at the end of an epoch, and when it writes and evaluates."""
    waits = []
    for size in ("36", "4"):
        strict_cupy.host_syncs.clear()
        run(*GPU, "--batch-size", size, out=size)
        waits.append(strict_cupy.host_syncs.copy())
    assert waits[0] == waits[1]
    assert waits[0]["stream.synchronize"] == 1  # an epoch's time includes all of its work


# ---- TF32


@pytest.fixture
def tf32_of_steps(monkeypatch):
    """Setting that CuPy would read in each step; the environment is restored after the test."""
    monkeypatch.setenv("CUPY_TF32", "")
    found, step = [], Trainer._step

    def noted(self, *batch):
        found.append(os.environ["CUPY_TF32"])
        step(self, *batch)

    monkeypatch.setattr(Trainer, "_step", noted)
    return found


@pytest.mark.slow
def test_tf32_is_off_by_default(strict_cupy, tf32_of_steps):
    os.environ["CUPY_TF32"] = "1"  # the record must match what is actually used
    folder = run(*GPU)
    assert tf32_of_steps == ["0"] * 5
    assert summary(folder)["tf32"] is False


@pytest.mark.slow
def test_tf32_is_switched_on_and_recorded(strict_cupy, tf32_of_steps):
    folder = run(*GPU, "--tf32")
    assert summary(folder)["tf32"] is True
    assert json.loads((folder / "config.json").read_text())["options"]["tf32"] is True
    os.environ["CUPY_TF32"] = "0"
    go_on(folder, "--epochs", "2")
    assert tf32_of_steps == ["1"] * 10


@pytest.mark.slow
def test_a_run_with_tf32_goes_on_without_on_the_cpu(strict_cupy, tf32_of_steps):
    folder = run(*GPU, "--tf32")
    go_on(folder, "--epochs", "2", "--device", "cpu")
    assert summary(folder)["tf32"] is False
    assert len(tf32_of_steps) == 10


@pytest.mark.parametrize("device", ["cpu", "auto"])
def test_tf32_is_refused_on_the_cpu(monkeypatch, capsys, device):
    monkeypatch.setitem(sys.modules, "cupy", None)
    said = refused(capsys, *TINY, "--device", device, "--tf32", "--out", "run", code=2)
    why = {"cpu": "chosen", "auto": "auto: CuPy cannot be imported"}[device]
    assert said.endswith(f"error: TF32 requires a GPU; the device is the CPU (NumPy) ({why})\n")
    assert not Path("run").exists()


# ---- progress output without a terminal


@pytest.fixture
def slow_steps(monkeypatch):
    """Clock that advances by 12 s in each step and otherwise stands still."""
    step, clock = Trainer._step, SimpleNamespace(now=1000.0)

    def slow(self, *batch):
        step(self, *batch)
        clock.now += 12

    monkeypatch.setattr(Trainer, "_step", slow)
    for module in (progress, trainer):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: clock.now))


def test_a_line_every_half_minute(slow_steps, capsys):
    assert train.main([*TINY[:-1], "--epochs", "3", "--out", "run"]) == 0
    out = capsys.readouterr().out
    assert "\nTesting on 30 images, about 17 s\n" in out  # 36 images took 60 s
    lines = [line for line in out.splitlines() if line.startswith("epoch")]
    progress = (
        r"epoch {}/3  24 of 36 images  train loss 0\.\d{{4}} accuracy \d+\.\d\d%  about {} left"
    )
    whole = r"epoch {}/3  train loss 0\.\d{{4}} accuracy .* images/s{}"
    left = ("2 min", "77 s", "20 s"), ("  about 2 min left", "", "")  # of the steps' 180 s
    patterns = [
        p.format(k + 1, left[n][k]) for k in range(3) for n, p in enumerate((progress, whole))
    ]
    assert len(lines) == len(patterns)
    for pattern, line in zip(patterns, lines, strict=True):
        assert re.fullmatch(pattern, line)


def test_an_epoch_resumed_at_its_end_tells_how_long_the_others_take(monkeypatch, capsys):
    """Only the validation, of 10 s, was left of it: no image has been learned since the start."""
    clock, seen = SimpleNamespace(now=0.0), SimpleNamespace(images=600)
    run_of = SimpleNamespace(epochs=4, patience=None)
    there = SimpleNamespace(epoch=1, training=range(600), seen=lambda: seen.images)
    there.optimization = run_of
    monkeypatch.setattr(progress, "describe", lambda _: None)
    monkeypatch.setattr(progress, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    display = progress.Display("minicaps.train", quiet=False)
    display.start(there)
    for epoch, speed, left in ((2, 5, "4 min"), (3, 7, "2 min")):
        clock.now += 10 if epoch == 2 else 120
        there.epoch, seen.images = epoch, 0
        display.epoch(there, {"epoch": epoch, "images_per_second": speed})
        assert f"{speed} images/s  about {left} left" in capsys.readouterr().out


def test_quiet_shows_no_such_line(slow_steps, capsys):
    run()
    assert "images  train loss" not in capsys.readouterr().out


@pytest.mark.slow
def test_only_a_line_waits_for_the_device(strict_cupy, monkeypatch, slow_steps):
    epoch, waits = Trainer.train_epoch, []

    def counted(self):
        strict_cupy.host_syncs.clear()
        epoch(self)
        waits.append(strict_cupy.host_syncs.copy())

    monkeypatch.setattr(Trainer, "train_epoch", counted)
    for name, seconds in (("one line", 30.0), ("no line", 100.0)):
        monkeypatch.setattr(progress.Display, "LINE", seconds)
        assert train.main([*TINY[:-1], *GPU, "--out", name]) == 0
    looks = 3  # finiteness, loss, accuracy
    assert waits == [Counter({"get": looks, "stream.synchronize": 1}), {"stream.synchronize": 1}]


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), [("gpu", "cpu"), ("cpu", "gpu")])
def test_a_run_goes_on_on_the_other_device(strict_cupy, first, second):
    options = ("--precision", "float64", "--shift", "1")
    straight = run(*options, "--epochs", "2", "--device", "cpu", out="straight")
    folder = go_on(run(*options, "--device", first), "--epochs", "2", "--device", second)
    for name, array in parameters(straight).items():
        np.testing.assert_allclose(parameters(folder)[name], array, rtol=0, atol=1e-9)
