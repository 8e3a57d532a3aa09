"""Fixtures that several test files share."""

import signal
import sys

import pytest

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
