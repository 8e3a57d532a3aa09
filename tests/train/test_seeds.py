"""`--seeds`: repeat a training run with several seeds and report the spread of the results."""

import json
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from mpi import needs_mpi
from shared_experiments import begin, begun
from tiny_runs import (
    TINY,
    assert_equal_runs,
    finish,
    go_on,
    parameters,
    refused,
    run,
    same,
    saved,
    send_in_call,
    summary,
)

from minicaps.train import __main__ as train
from minicaps.train.trainer import Trainer


def accuracies(folder, seeds):
    return [summary(folder / f"seed-{seed}")["test_accuracy"] for seed in seeds]


def test_each_seed_has_a_run_and_the_spread_is_reported(capsys):
    folder = run("--seed", "3", "--seeds", "3")
    assert sorted(os.listdir(folder)) == [
        "config.json",
        "seed-3",
        "seed-4",
        "seed-5",
        "summary.json",
    ]
    for seed in (3, 4, 5):
        assert_equal_runs(folder / f"seed-{seed}", run("--seed", str(seed), out=f"alone-{seed}"))
    found, single = summary(folder), accuracies(folder, (3, 4, 5))
    assert [row["seed"] for row in found["runs"]] == [3, 4, 5]
    assert [row["test_right"] / row["test_samples"] for row in found["runs"]] == single
    spread = found["test_accuracy"]
    assert spread["mean"] == pytest.approx(np.mean(single))
    assert spread["standard_deviation"] == pytest.approx(np.std(single, ddof=1))
    assert (spread["min"], spread["max"]) == (min(single), max(single))
    said = capsys.readouterr().out
    assert f"Test accuracy over 3 seeds: mean {spread['mean']:.2%}, standard deviation" in said


@pytest.mark.slow
def test_progress_is_said(capsys):
    assert train.main([*TINY[:-1], "--seeds", "2", "--out", "run"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "Seed 0 (1 of 2)"
    assert "Seed 1 (2 of 2)" in said


@pytest.mark.slow
@pytest.mark.parametrize("step", [2, 8])  # in the first run, in the second
def test_interrupted_runs_go_on_bit_equal(monkeypatch, capsys, step):
    straight = run("--seeds", "2", out="straight")
    capsys.readouterr()
    with monkeypatch.context() as patch:
        send_in_call(patch, Trainer, "_step", step, signal.SIGTERM)
        assert train.main([*TINY, "--seeds", "2", "--out", "run"]) == 143
    assert capsys.readouterr().err.endswith("python -m minicaps.train --resume run\n")
    go_on("run")
    for seed in (0, 1):
        assert_equal_runs(Path("run", f"seed-{seed}"), straight / f"seed-{seed}")
    assert summary("run")["test_accuracy"] == summary(straight)["test_accuracy"]


@pytest.mark.slow
def test_what_is_done_is_not_done_again(monkeypatch):
    folder, steps = run("--seeds", "2"), []
    before = summary(folder)["runs"]
    step = Trainer._step
    monkeypatch.setattr(Trainer, "_step", lambda *a: (steps.append(1), step(*a)))
    assert summary(go_on(folder))["runs"] == before
    assert not steps
    assert [row["seed"] for row in summary(go_on(folder, "--seeds", "3"))["runs"]] == [0, 1, 2]
    assert len(steps) == 5  # one run of five steps
    go_on(folder, "--epochs", "2")
    assert len(steps) == 5 + 3 * 5
    assert summary(folder / "seed-2")["epochs"] == 2


@pytest.mark.slow
def test_a_run_that_was_killed_before_it_saved_begins_again():
    folder = run("--seeds", "2")
    good = parameters(folder / "seed-1")
    for name in ("best.npz", "last.npz", "summary.json"):
        (folder / "seed-1" / name).unlink()
    assert same(parameters(go_on(folder) / "seed-1"), good)
    (folder / "seed-1" / "summary.json").write_text("{")
    go_on(folder)
    assert summary(folder / "seed-1")["seed"] == 1


@pytest.mark.slow
def test_what_does_not_go_with_it_is_refused(capsys):
    run("--seeds", "2")
    run(out="single")
    Path("full").mkdir()
    Path("full/mine").touch()
    capsys.readouterr()
    for arguments, code, part in (
        (("--resume", "run", "--seed", "5"), 2, "--seed cannot change"),
        (("--resume", "single", "--seeds", "2"), 2, "--seeds cannot change"),
        (("--seeds", "2", "--out", "full"), 2, "full already exists"),
        (("--seeds", "2", "--out", "run"), 2, "run already exists"),
    ):
        assert part in refused(capsys, *arguments, code=code)
    config = json.loads(Path("run/config.json").read_text())
    config["options"]["batch_size"] = 0
    Path("run/config.json").write_text(json.dumps(config))
    said = refused(capsys, "--resume", "run", code=1)
    assert "config.json does not fit this version of minicaps: argument --batch-size: must" in said


@pytest.mark.slow
def test_a_run_in_a_folder_of_seeds_goes_on_alone():
    folder = run("--seeds", "2")
    assert saved(go_on(folder / "seed-1", "--epochs", "2"))[1]["progress"]["epoch"] == 2


SEEDS = ("minicaps.train", *TINY[:-1], "--seeds", "3", "--out", "run")
RUNS = ["seed-0", "seed-1", "seed-2"]


@pytest.mark.slow
def test_several_processes_train_each_seed_once(tmp_path):
    """Others join with --resume, even before the first checkpoint exists."""
    there, alone = tmp_path / "there", tmp_path / "alone"
    assert finish(begin(alone, SEEDS))[0] == 0
    processes = [begin(there, SEEDS, slow=0.3)]
    while not begun(there):
        assert processes[0].poll() is None
        time.sleep(0.05)
    resume = ("minicaps.train", "--resume", "run")
    processes += [begin(there, resume, slow=0.1) for _ in range(2)]
    for process in processes:
        code, out, _ = finish(process)
        assert code == 0 and "Test accuracy over 3 seeds: mean" in out
    assert sorted(name for name, *_ in begun(there)) == RUNS
    for name in RUNS:
        assert_equal_runs(there / "run" / name, alone / "run" / name)
    assert sorted(os.listdir(there / "run")) == ["config.json", *RUNS, "summary.json"]


@pytest.mark.slow
@needs_mpi
def test_ranks_share_the_seeds(tmp_path):
    there, alone = tmp_path / "there", tmp_path / "alone"
    code, out, _ = finish(begin(there, SEEDS, ranks=2))
    assert code == 0
    assert finish(begin(alone, SEEDS, cores=max(1, len(os.sched_getaffinity(0)) // 2)))[0] == 0
    for name in RUNS:
        assert_equal_runs(there / "run" / name, alone / "run" / name)
        assert f"[{name.replace('-', ' ')}] epoch 1/1" in out
    assert sorted(name for name, *_ in begun(there)) == RUNS
    assert out.count("Test accuracy over 3 seeds: mean") == 1
    assert finish(begin(there, ("minicaps.train", "--resume", "run"), ranks=3))[0] == 0
    assert sorted(name for name, *_ in begun(there)) == RUNS  # nothing was left to do
