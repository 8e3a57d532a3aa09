"""`--estimate`: predict the cost of a run from a few of its steps, without writing anything."""

import json
import os
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from commands import environment
from tiny_runs import TINY, refused

from minicaps.backend import choose_device
from minicaps.cli import measuring
from minicaps.errors import ProcessError
from minicaps.train import __main__ as train
from minicaps.train import forecast
from minicaps.train.options import complete
from minicaps.train.trainer import Trainer

FOUND = {"memory": 50 * 2**20, "step": 0.02, "picture": 0.001}


@pytest.fixture
def measured(monkeypatch):
    """Arguments of the process that would have been started; no process runs."""
    arguments = []

    def instead(module, *given):
        arguments.append((module, *given))
        return json.dumps(FOUND)

    monkeypatch.setattr(forecast, "in_a_process", instead)
    return arguments


def test_the_figures_follow_from_what_was_measured(measured, capsys):
    assert train.main([*TINY, "--epochs", "3", "--estimate"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "Data: strokes, 36 training, 4 validation, 30 test images"
    assert lines[2].endswith("13,416 parameters")
    assert lines[3] == "Memory: 50 MiB for a step of 8 images; 0 MiB for all images"
    assert lines[4] == (
        "Time: 20.0 ms per step, 5 steps per epoch, and 4 validation images: 0.1 s per epoch"
    )
    assert lines[5] == "Total: 0.3 s for 3 epochs and a test on 30 images"
    assert os.listdir() == []
    assert measured[0][0] == "minicaps.train.forecast" and measured[0][2:] == (1, 28, 28, 10)


def test_one_is_singular_and_large_numbers_have_commas(measured, monkeypatch, capsys):
    few = ["--epochs", "1", "--limit", "12", "--batch-size", "20", "--validation", "0.1"]
    assert train.main([*TINY, *few, "--estimate"]) == 0
    said = capsys.readouterr().out
    assert "1 step per epoch, and 1 validation image: " in said
    assert "for 1 epoch and a test on 30 images" in said
    forecast._tell_memory({"memory": 50 * 2**20, "tried": 2000}, 9000, 0)
    said = capsys.readouterr().out
    assert "50 MiB for a step of 9,000 images, estimated from a step of 2,000; 0 MiB" in said


def test_seeds_and_patience_and_long_runs(measured, monkeypatch, capsys):
    monkeypatch.setitem(FOUND, "step", 100.0)
    monkeypatch.setitem(FOUND, "memory", None)
    train.main([*TINY, "--epochs", "9", "--patience", "2", "--seeds", "2", "--estimate"])
    said = capsys.readouterr().out
    assert "Memory: unknown, because this system does not report it" in said
    assert ": 8 min per epoch" in said
    assert "Total: at most 2.5 h for 9 epochs and a test on 30 images in 2 runs" in said


def test_what_a_run_would_refuse_is_refused(measured, capsys):
    assert "images of 3×3" in refused(capsys, *TINY, "--size", "3", "--estimate", code=2)
    assert "--estimate cannot" in refused(capsys, "--resume", "x", "--estimate", code=2)
    assert not measured


@pytest.mark.slow
def test_in_a_process_of_its_own():
    """With a network of known size, larger batches need more memory and time."""
    found = []
    for size in (8, 256):
        given = {"reconstruction": 0, "out": "x", "device": "cpu", "batch_size": size}
        options = json.dumps(complete(given).to_dict() | {"validation": 0, "several": False})
        found.append(
            json.loads(measuring.in_a_process("minicaps.train.forecast", options, 1, 28, 28, 10))
        )
    few, many = found
    assert many["step"] > 2 * few["step"] > 0
    assert 0 < few["picture"] < few["step"]
    if measuring.process_peak() is not None:
        assert many["memory"] > few["memory"] > 2**20
    assert os.listdir() == []


@pytest.mark.parametrize("kind", [{"compose": 2}, {"compose": 3, "layout": "below"}, {}])
def test_steps_with_several_classes(kind, capsys):
    given = {"out": "x", "device": "cpu", "batch_size": 4, **kind}
    options = complete(given).to_dict() | {"validation": 0, "several": not kind}
    forecast.main(json.dumps(options), "1", "20", "20", "5")
    found = json.loads(capsys.readouterr().out)
    assert found["step"] > 0 and found["picture"] > 0


def test_a_failure_in_the_process_is_a_sentence(monkeypatch, capsys):
    def broken(*_):
        raise ProcessError("python -m minicaps.train.forecast failed: MemoryError")

    monkeypatch.setattr(forecast, "in_a_process", broken)
    said = refused_with_output(capsys, *TINY, "--estimate")
    assert said == "minicaps.train: python -m minicaps.train.forecast failed: MemoryError\n"


GB = 10**9


@pytest.mark.parametrize(
    ("found", "batch", "said"),
    [
        (
            {"memory": 9.2 * GB, "tried": 4, "free": 8 * GB},
            8,
            "a step of 8 images needs about 9.2 GB of memory, but 8.0 GB is available: try"
            " --batch-size 4, a smaller --size, or another --model",
        ),
        (
            {"memory": 9.2 * GB, "tried": 1, "free": 8 * GB},
            1,
            "a step of 1 image needs about 9.2 GB of memory, but 8.0 GB is available: try a"
            " smaller --size, or another --model",
        ),
        (
            {"memory": 4 * GB, "tried": 0, "free": 8 * GB},
            8,
            "a step with a single image needs more than 4.0 GB of memory, half of what is"
            " available: try a smaller --size, or another --model",
        ),
    ],
)
def test_a_step_that_exceeds_memory_is_refused(measured, monkeypatch, capsys, found, batch, said):
    for name, value in found.items():
        monkeypatch.setitem(FOUND, name, value)
    line = [*TINY, "--batch-size", str(batch), "--estimate"]
    assert refused_with_output(capsys, *line) == f"minicaps.train: {said}\n"


def test_a_step_estimated_from_fewer_images_says_so(measured, monkeypatch, capsys):
    for name, value in {"tried": 4, "free": 8 * GB}.items():
        monkeypatch.setitem(FOUND, name, value)
    assert train.main([*TINY, "--estimate"]) == 0
    said = capsys.readouterr().out
    assert "Memory: about 50 MiB for a step of 8 images, estimated from a step of 4; 0 MiB" in said
    assert "Time: about 20.0 ms per step" in said


def test_the_batch_grows_within_the_budget():
    """A budget that suffices for few images only stops before it is exceeded."""
    given = {"out": "x", "device": "cpu", "batch_size": 64}
    cpu = choose_device("cpu")
    about = (complete(given), False, (1, 28, 28), 10, cpu)
    assert forecast._grown(*about, 10 * GB) is None  # it may be measured as a whole
    found = forecast._grown(*about, 1e6)
    assert 1 < found["tried"] < 64 and found["memory"] > 1e6
    assert found["step"] > found["picture"] > 0


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_only_on_a_cpu_is_the_memory_for_images_limited(kind, measured, monkeypatch, capsys):
    """CUDA could not start under a limit."""
    limits, found = [], SimpleNamespace(kind=kind)

    def noted(more):
        limits.append(more)
        return nullcontext()

    def device(name):
        assert not limits
        return found

    monkeypatch.setattr(forecast, "choose_device", device)
    monkeypatch.setattr(forecast, "available_memory", lambda: 2**30)
    monkeypatch.setattr(forecast, "memory_limit", noted)
    assert train.main([*TINY, "--estimate"]) == 0
    assert limits == [2**29 if kind == "cpu" else None]


def test_memory_grows_linearly_with_the_batch():
    assert forecast._need([(4, 70), (2, 50)], 64) == 70 + 60 * 10
    assert forecast._need([(4, 50), (2, 50)], 64) == 50


def test_a_limit_of_memory_holds_inside_its_block():
    if measuring.available_memory() is None:
        pytest.skip("requires Linux")
    with pytest.raises(MemoryError), measuring.memory_limit(2**28):
        np.empty(2**29, np.uint8)
    assert np.empty(2**29, np.uint8).nbytes == 2**29


@pytest.mark.parametrize("batch", [1, 8])
def test_the_advice_suits_the_batch_size(batch, monkeypatch, capsys):
    def failing(*_):
        raise MemoryError

    monkeypatch.setattr(Trainer, "_step", failing)
    said = refused_with_output(capsys, *TINY, "--batch-size", str(batch), "--out", "run")
    smaller = "a smaller --size, or another --model\n"
    tried = f"a smaller --batch-size, {smaller}" if batch > 1 else smaller
    assert said == f"minicaps.train: there is not enough memory: try {tried}"


@pytest.mark.skipif(os.name != "posix", reason="requires SIGKILL")
def test_no_process_is_left_when_the_parent_is_killed(tmp_path):
    (tmp_path / "asleep.py").write_text(
        "import os, time\nprint(os.getpid())\n"
        "open('pid', 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    )
    code = "from minicaps.cli.measuring import in_a_process\nin_a_process('asleep')"
    own = environment()
    own["PYTHONPATH"] += f"{os.pathsep}{tmp_path}"
    parent = subprocess.Popen([sys.executable, "-c", code], env=own, cwd=tmp_path)
    try:
        wait_until((tmp_path / "pid").exists)
        wait_until((tmp_path / "pid").read_text)
    finally:
        parent.kill()
        parent.wait()
    child = int((tmp_path / "pid").read_text())
    wait_until(lambda: not _running(child))


def _running(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{process}/status")  # a zombie waits for its new parent
    return not (status.exists() and "\nState:\tZ" in status.read_text())


def wait_until(condition):
    for _ in range(600):
        if condition():
            return
        time.sleep(0.1)
    pytest.fail("waited in vain")


def refused_with_output(capsys, *arguments):
    assert train.main(list(arguments)) == 1
    return capsys.readouterr().err


def test_the_stopwatch_leaves_the_first_steps_out():
    watch = forecast.Stopwatch(None)
    watch.times = [10.0, 20.0, 21.0, 22.0, 25.0]
    assert watch.step_time() == np.median([1.0, 1.0, 3.0])
    assert not watch
    watch.times.append(26.0)
    assert watch
