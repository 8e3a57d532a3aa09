"""Make the commands use tiny runs."""

import pytest


@pytest.fixture(autouse=True)
def every_run_is_tiny(tiny):
    pass
