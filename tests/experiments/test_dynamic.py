"""dynamic: digits are where the networks have learned them, and the figures fit together."""

import json
from pathlib import Path

import numpy as np
import pytest

from minicaps import data
from minicaps.experiments import __main__ as command
from minicaps.experiments import dynamic, lab
from minicaps.experiments.significance import only


def test_each_digit_of_a_pair_lies_where_single_digits_were_learned():
    digits = data.load("strokes", limit=100)  # of 16×16 pixels, see conftest.py
    for kind in dynamic.KINDS:
        split = dynamic.shown(kind, digits, 0, wide=True)
        assert split.images.shape == (30, 1, 40, 40) and split.labels.shape == (30, 10)
        assert (split.labels.sum(axis=1) == (1 if kind == "single" else 2)).all()
    joined = dynamic.shown("joined", digits, 0, wide=True).images
    narrow = dynamic.shown("joined", digits, 0, wide=False).images
    np.testing.assert_array_equal(joined[:, :, 2:18, 12:28], narrow[:, :, :16])
    np.testing.assert_array_equal(joined[:, :, 22:38, 12:28], narrow[:, :, 16:])
    assert joined.sum() == pytest.approx(narrow.sum(), rel=1e-6)


@pytest.mark.slow
def test_couplings_are_replaced_and_drawn(monkeypatch):
    monkeypatch.setattr(dynamic, "DATA", "strokes")
    monkeypatch.setattr(lab, "QUICK_TRAINING", 60)
    whole = dynamic.parts(quick=True)
    parts = {p: own | {"validation": 20, "batch_size": 20} for p, own in whole.items()}
    monkeypatch.setattr(dynamic, "parts", lambda quick: parts)
    assert command.main(["dynamic", "--quick", "--device", "cpu"]) == 0
    folder = Path("runs/experiments/dynamic-quick")
    assert (folder / "dynamic.png").stat().st_size > 10_000
    entries = json.loads((folder / "dynamic/seed-0.json").read_text())
    found = {part: entry["figures"] for part, entry in entries.items()}
    assert found.keys() == whole.keys()
    for name in ("spherical", "one-iteration"):
        assert Path(f"runs/experiments/pairs-quick/{name}-seed-0/summary.json").exists()
    for part, figures in found.items():
        for kind, every in figures["kinds"].items():
            one, *rest = every
            assert (one["entropy"], one["spread"]) == pytest.approx((1, 0), abs=1e-6)
            as_trained = every[dynamic.ITERATIONS.index(parts[part].get("iterations", 3))]
            assert as_trained["against"]["own"]["changed"] == 0
            for row in rest:
                against = row["against"]
                for name in dynamic.REPLACED:
                    moved = (against[name]["gained"] - against[name]["lost"]) / figures["tested"]
                    gap = against[name]["accuracy"] - against["own"]["accuracy"]
                    assert gap == pytest.approx(moved), (part, kind, name)
    report = json.loads((folder / "dynamic.json").read_text())
    paired = {row[0]: row[2:4] for row in report["paired"]}
    for first, second in dynamic.COMPARED:
        for kind in dynamic.KINDS:
            counts = only(*(found[part]["wrong"][kind] for part in (first, second)))
            assert paired[f"{first} / {second}, {kind}"] == list(map(str, counts))
