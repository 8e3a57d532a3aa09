"""`--estimate`: predict the cost of a run from a few of its steps, without writing anything."""

import json
import os

import numpy as np
import pytest
from tiny_runs import TINY, refused

from minicaps.cli import measuring
from minicaps.errors import ProcessError
from minicaps.train import __main__ as train
from minicaps.train import forecast
from minicaps.train.options import complete

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
