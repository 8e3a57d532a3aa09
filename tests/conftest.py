"""Fixtures that several rooms share."""

import os
import signal
import sys

import hypothesis
import pytest

# Each worker of xdist has a core: BLAS threads of several would wait for each other, all busy.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy reads it when it is imported

# A loaded machine may take long for an example, and to draw one.
hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")

# A shell lets its background jobs ignore Ctrl-C; tests send it to themselves and to others.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def strict_cupy(monkeypatch):
    """Make the stand-in of strict_cupy.py the `cupy` of this test, and return that module."""
    from strict_cupy import cupy

    cupy.host_syncs.clear()
    cupy.host_copies.clear()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "cupyx", None)  # an import of it fails: not needed, not there
    return cupy


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """Few test pictures, tiny networks, no drawing, and an empty folder to work in."""
    from tiny_runs import NETWORK

    from minicaps import models, plotting
    from minicaps.data import strokes

    monkeypatch.setattr(strokes, "TEST_SIZE", 30)
    monkeypatch.setitem(models.CAPSNET_PRESETS, "small", NETWORK)
    monkeypatch.setitem(models.MATRIX_PRESETS, "small", (8, 2, 3, 3))
    monkeypatch.setattr(plotting, "curves", lambda *_: None)
    monkeypatch.setattr(plotting, "reconstructions", lambda *_: None)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def specks(monkeypatch):
    """Pictures of 4×4 pixels: the baseline network has three million parameters then, not 35."""
    from minicaps import data

    def cut(split):
        return data.Split(split.images[:, :, 12:16, 12:16], split.labels)

    def load(*args, **keywords):
        whole = original(*args, **keywords)
        return data.Dataset(whole.name, cut(whole.train), cut(whole.test), whole.class_names)

    original = data.load
    monkeypatch.setattr(data, "load", load)
