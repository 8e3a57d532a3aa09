"""Fixtures shared by the engine's tests."""

import pytest

from minicaps.tensor import REGISTRY


@pytest.fixture(autouse=True)
def leave_the_registry_alone(monkeypatch):
    """Remove the ops that a test defines after it has run."""
    monkeypatch.setattr("minicaps.tensor.REGISTRY", dict(REGISTRY))
