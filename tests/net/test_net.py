"""A safety net for changes: old runs, commands and public names still work as before.

`make.py` made the reference data; `drive.py` runs the current code.
"""

import importlib
import json
import math
from pathlib import Path

import drive
import pytest
from thinning import thinned

STORED = json.loads((drive.HERE / "expected.json").read_text())
PUBLIC = json.loads((drive.HERE / "public_names.json").read_text())
DRAWN = {  # runs whose figures are drawn, and the names of the figures
    "capsnet-agreement": "confusion couplings curves kernels reconstructions sweeps",
    "pooling-cnn": "confusion curves kernels",
}
CLOSE = 1e-6  # relative to at least 1: machines differ in the order of rounding
RESUMED = 1e-3


def differences(now, stored, tolerance, place):
    """Yield descriptions of the values that differ from stored ones; new keys are allowed."""
    if isinstance(stored, dict) and isinstance(now, dict):
        for key in stored:
            if key in now:
                yield from differences(now[key], stored[key], tolerance, f"{place}/{key}")
            else:
                yield f"{place}/{key} is gone"
    elif isinstance(stored, list) and isinstance(now, list) and len(now) == len(stored):
        for k, (one, other) in enumerate(zip(now, stored, strict=True)):
            yield from differences(one, other, tolerance, f"{place}/{k}")
    elif isinstance(stored, float) and isinstance(now, float):
        if not abs(now - stored) <= tolerance * max(1, abs(stored)):
            yield f"{place} is {now}, was {stored}"
    elif now != stored:
        yield f"{place} is {now}, was {stored}"


def resumed_differently(now, stored):
    for key, value in stored.items():  # few images: rounding may flip one
        tolerance = 0.06 if key.endswith("accuracy") else RESUMED * abs(value)
        if not abs(now.get(key, math.nan) - value) <= tolerance:
            yield f"resume/{key} is {now.get(key)}, was {value}"


def test_all_old_runs_are_there():
    assert sorted(STORED) == drive.names()


@pytest.mark.parametrize("name", thinned(STORED, ["capsnet-leaky", "matrix-capsnet"]))
def test_old_run(name):
    """It loads, predicts, evaluates, resumes and draws as before."""
    stored, now = STORED[name], drive.ask("measure", name, *(["figures"] if name in DRAWN else []))
    wrong = [
        line
        for what in ("activations", "predict", "evaluate")
        for line in differences(now[what], stored[what], CLOSE, what)
    ]
    wrong += resumed_differently(now["resume"], stored["resume"])
    assert not wrong, "\n".join(wrong)
    assert now["resume"]["epoch"] == drive.EPOCHS + 1
    if name in DRAWN:
        assert {Path(file).stem for file in now["plot"]} == set(DRAWN[name].split())


def test_help():
    """Compare word by word, because versions of Python break lines differently."""
    texts = {path.name: path.read_text() for path in (drive.HERE / "help").iterdir()}
    now = drive.ask("help")
    assert now.keys() == texts.keys()
    for name, text in texts.items():
        assert now[name].split() == text.split(), name


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names(module):
    here = importlib.import_module(module)
    for name, parameters in PUBLIC[module].items():
        assert hasattr(here, name), f"{module}.{name} is gone"
        if parameters:
            now = drive.parameters(getattr(here, name))
            for parameter, stored in parameters.items():
                place = f"{module}.{name}({parameter})"
                assert parameter in now, f"{place} is gone"
                assert now[parameter] == stored, f"{place} is {now[parameter]}, was {stored}"
            new = [now[p] for p in now.keys() - parameters.keys()]
            assert all(kind.startswith("var") or default != "required" for kind, default in new)
