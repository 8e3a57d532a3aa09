"""Signals, dead ranks and full disks end all ranks with one sentence and a whole checkpoint."""

import os
import random
import re
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from mpi import finish, in_step, needs_mpi, ranks_of, run, start, train, wait_for
from thinning import thinned, thinned_rows
from tiny_runs import parameters, saved, summary

pytestmark = needs_mpi
LONG = ("--epochs", "9999", "--out", "run")
DOUBLE = ("--precision", "float64", "--epochs", "3")
STOPPED = "minicaps.train: stopped and saved. Resume with:\n"
STOPPED += "  mpiexec -n 2 python -m minicaps.train --resume run\n"
HYDRA = re.compile(
    r"^(\[mpiexec|=|Abort\(|YOUR APPLICATION|This typically|Please see|\s*$).*\n?", re.M
)


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def said(err):
    """Return what the ranks printed, without the remarks of mpiexec."""
    return HYDRA.sub("", err)


def close(one, other):
    return all(abs(a - b).max() <= 1e-10 for a, b in zip(one.values(), other.values(), strict=True))


def straight():
    """Return the parameters of an uninterrupted run in one process."""
    assert finish(train(1, *DOUBLE, "--out", "straight"))[0] == 0
    return parameters("straight")


@pytest.mark.parametrize("number", thinned([signal.SIGTERM, signal.SIGINT]))
def test_a_signal_to_mpiexec_saves_once(number):
    process = train(2, *LONG)
    wait_for("run/last.npz", process)
    process.send_signal(number)
    code, out, err = finish(process)
    assert (code, said(out), said(err)) == (128 + number, "", STOPPED)
    assert saved("run")[1]["progress"]["epoch"] >= 1


def test_a_stop_on_one_rank_stops_all_and_other_ranks_resume():
    """Rank 1 is asked to stop in step 8 of 15, and all ranks stop after that step."""
    term = in_step(8, 1, "os.kill(os.getpid(), signal.SIGTERM)")
    code, _, err = finish(train(2, *DOUBLE, "--out", "run", fault=term))
    assert (code, said(err)) == (143, STOPPED)
    assert [saved("run")[1]["progress"][key] for key in ("epoch", "batch")] == [1, 3]
    assert finish(train(3, "--resume", "run"))[0] == 0
    assert close(parameters("run"), straight())
    assert summary("run")["ranks"]["count"] == 3
    assert summary("run")["test_right"] == summary("straight")["test_right"]


def test_an_error_on_one_rank_ends_all():
    fault = in_step(8, 1, "raise DataError('this disk is gone')")
    code, out, err = finish(train(2, *DOUBLE, "--out", "run", fault=fault))
    assert (code, said(out), said(err)) == (1, "", "minicaps.train: this disk is gone (rank 1)\n")
    assert saved("run")[1]["progress"]["epoch"] == 1
    assert finish(train(1, "--resume", "run"))[0] == 0
    assert close(parameters("run"), straight())


@pytest.mark.slow
def test_a_fault_in_the_program_on_one_rank_ends_all():
    process = train(2, *LONG, fault=in_step(8, 1, "1 / 0"))
    _, err = process.communicate(timeout=100)
    assert process.returncode == 1
    assert err.count("ZeroDivisionError") == 1


@pytest.mark.slow
def test_a_full_disk_on_rank_0_is_told_once():
    full = "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, -1))"
    fault = in_step(8, 0, full)
    code, _, err = finish(train(2, *DOUBLE, "--out", "run", fault=fault))
    assert code == 1
    assert re.fullmatch(r"minicaps.train: cannot write run/\w+.npz: File too large\n", said(err))
    assert not list(Path("run").glob("*.part"))
    assert finish(train(2, "--resume", "run"))[0] == 0
    assert close(parameters("run"), straight())


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    thinned_rows([
        (("--epochs", "0"), 2, "argument --epochs: must be a whole number of at least 1, not '0'"),
        (("--data", "run", "--out", "run"), 2, "run already exists: choose another --out"),
        (("--optimizer", "sgd", "--learning-rate", "1e20", "--out", "new"), 1,
         "the loss became infinite or NaN in step 2 (epoch 1), first in the layer"),
        (("--estimate",), 2, "--estimate measures a single process: leave mpiexec out"),
    ]),
)  # fmt: skip
def test_an_error_of_all_ranks_is_told_once(options, code, sentence):
    Path("run").mkdir()
    Path("run", "file").touch()
    found, out, err = finish(train(2, *options))
    assert (found, out) == (code, "")
    assert err.count(sentence) == 1
    assert err.count("minicaps.train: ") == 1
    assert not re.search(r"\(rank \d\)|Abort", err)


@pytest.mark.slow
def test_a_second_signal_ends_at_once():
    process = train(2, *LONG, fault=in_step(8, 0, "time.sleep(100)"))
    wait_for("run/last.npz", process)
    started = time.monotonic()
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
    process.communicate(timeout=50)
    assert process.returncode != 0
    assert time.monotonic() - started < 50


@pytest.mark.slow
def test_killing_a_rank_at_random_moments_loses_nothing():
    """Each kill ends mpiexec too, and the next ranks resume from the last whole checkpoint."""
    rng, epochs = random.Random(0), 0
    for trial in range(20):
        again = ("--resume", "run", "--epochs", "9999") if Path("run/last.npz").exists() else LONG
        if again is LONG and Path("run").exists():
            [file.unlink() for file in Path("run").iterdir()]
            Path("run").rmdir()
        process = train(rng.choice([2, 3]), *again)
        wait_for("run/config.json", process)
        time.sleep(rng.uniform(0.0, 4.0))
        while not (found := ranks_of(process)):  # resumed, and not yet started
            time.sleep(0.05)
        os.kill(found[rng.choice([*found])], signal.SIGKILL)
        process.communicate(timeout=100)
        assert process.returncode != 0
        if Path("run/last.npz").exists():
            now = saved("run")[1]["progress"]["epoch"]
            assert now >= epochs, f"kill {trial} lost epochs"
            epochs = now
    assert epochs > 0
    assert all(np.isfinite(a).all() for a in parameters("run").values())
    assert not ranks_of(process)


def test_without_mpi4py_one_sentence_says_what_to_install():
    hidden = "import sys; sys.modules['mpi4py'] = None\n"
    code, out, err = finish(train(2, *LONG, fault=hidden))
    assert (code, out) == (1, "")
    assert err.count("mpiexec started several processes, but mpi4py cannot be imported") == 1
    assert 'pip install -e ".[mpi]"' in err
    assert not Path("run").exists()


def test_plain_runs_do_not_load_mpi():
    code = "import sys, minicaps.train.__main__; from minicaps import ranks, threads"
    code += "; assert ranks.count() == 1 and threads.cores(); print('mpi4py' in sys.modules)"
    process = start(1, "-c", code)
    assert finish(process)[:2] == (0, "False\n")


def test_a_command_without_shared_work_runs_on_rank_0():
    out, err = run(2, "-m", "minicaps.plot", "nowhere", code=1)
    assert (out, err.count("minicaps.plot: there is no checkpoint nowhere")) == ("", 1)
