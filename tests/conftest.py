"""Fixtures shared by several rooms."""

import os
import shutil
import signal
import sys

import hypothesis
import pytest

# Each worker of xdist has one core: the BLAS threads of several would block each other.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy reads it when it is imported

# A busy machine may need a long time to draw or run an example.
hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")

# Background jobs of a shell ignore Ctrl-C, but tests send it to themselves and other processes.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def browser():
    """Start the installed chromium; skip tests of pages without it or without playwright."""
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if not chromium:
        pytest.skip("no chromium is installed")
    with playwright.sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=chromium)
        yield browser
        browser.close()


@pytest.fixture
def strict_cupy(monkeypatch):
    """Install the stand-in of strict_cupy.py as `cupy` for this test, and return that module."""
    from strict_cupy import cupy

    cupy.host_syncs.clear()
    cupy.host_copies.clear()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "cupyx", None)  # importing it fails, since it is not needed
    return cupy


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """Use few test images, tiny networks, no plots, and an empty working directory.

    Any reconstruction counts as visible, since training is too short for good ones.
    """
    from tiny_runs import NETWORK

    from minicaps import models, plotting
    from minicaps.data import strokes
    from minicaps.models import inspection

    monkeypatch.setattr(inspection, "FAINT", 0)
    monkeypatch.setattr(inspection, "VISIBLE", 0)
    monkeypatch.setattr(strokes, "TEST_SIZE", 30)
    monkeypatch.setitem(models.CAPSNET_PRESETS, "small", NETWORK)
    monkeypatch.setitem(models.MATRIX_PRESETS, "small", (8, 2, 3, 3))
    monkeypatch.setattr(plotting, "curves", lambda *_: None)
    monkeypatch.setattr(plotting, "reconstructions", lambda *_: None)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def specks(monkeypatch):
    """Use images of 4×4 pixels, so that the baseline network has 3 million parameters, not 35."""
    from minicaps import data

    def cut(split):
        return data.Split(split.images[:, :, 12:16, 12:16], split.labels)

    def load(*args, **keywords):
        whole = original(*args, **keywords)
        return data.Dataset(whole.name, cut(whole.train), cut(whole.test), whole.class_names)

    original = data.load
    monkeypatch.setattr(data, "load", load)
