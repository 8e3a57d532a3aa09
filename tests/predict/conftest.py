"""Fixture that makes every run of these tests tiny."""

import pytest


@pytest.fixture(autouse=True)
def every_run_is_tiny(tiny):
    pass
