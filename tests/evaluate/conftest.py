"""Fixtures for evaluations: tiny runs, optionally without drawing."""

import pytest

from minicaps import plotting
from minicaps.storage import write_json


@pytest.fixture(autouse=True)
def every_run_is_tiny(tiny):
    pass


@pytest.fixture
def undrawn(monkeypatch):
    """Write empty files instead of drawing, which takes most of the time."""
    for name in ("confusion", "worst"):
        monkeypatch.setattr(plotting, name, lambda *arguments: write_json(arguments[-1], None))
