"""What the engine's tests share."""

import pytest

from minicaps.tensor import REGISTRY


@pytest.fixture(autouse=True)
def leave_the_registry_alone(monkeypatch):
    """Ops that a test defines are gone after it."""
    monkeypatch.setattr("minicaps.tensor.REGISTRY", dict(REGISTRY))
