"""What is evaluated are tiny runs; drawing is optional."""

import pytest

from minicaps import plotting
from minicaps.storage import write_json


@pytest.fixture(autouse=True)
def every_run_is_tiny(tiny):
    pass


@pytest.fixture
def undrawn(monkeypatch):
    """No drawing, which takes most of the time; the files hold nothing."""
    for name in ("confusion", "worst"):
        monkeypatch.setattr(plotting, name, lambda *arguments: write_json(arguments[-1], None))
