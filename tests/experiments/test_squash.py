"""squash: the layers it changes, its measurements and its figure."""

import json
from pathlib import Path

import numpy as np
import pytest

from minicaps import ops
from minicaps.experiments import __main__ as command
from minicaps.experiments import squash
from minicaps.models import build
from minicaps.tensor import Tensor
from minicaps.train.options import complete

FOLDER = Path("runs/experiments/squash-quick")


def test_every_part_changes_one_layer():
    parts = squash.parts(quick=False)
    both = parts.pop("both-paper")
    assert both["squash"] == both["primary_squash"] == "paper"
    for part, settings in parts.items():
        layer, kind = part.split("-")
        changed = {name for name in settings if settings[name] != both[name]}
        assert changed == {{"end": "squash", "middle": "primary_squash"}[layer]}
        assert settings[changed.pop()] == kind
        assert complete(settings).model.primary_squash == settings["primary_squash"]
    assert len(parts) == 9


def test_the_lengths_are_those_of_the_primary_capsules():
    """Without a squash, they are norms of convolution outputs; with tanh, the tanh of the norms."""
    images = np.random.default_rng(0).random((2, 1, 28, 28)).astype(np.float32)
    options = {"preset": "small", "decoder": False, "seed": 3}
    found = {}
    for kind in ("none", "tanh"):
        model = build("capsnet", (1, 28, 28), 10, primary_squash=kind, **options)
        found[kind] = ops.length(model.primary_capsules(Tensor(images))).numpy()
    x = Tensor(images)
    for convolution in model.convolutions:
        x = ops.relu(convolution(x))
    maps = model.primary.conv(x).numpy().transpose(0, 2, 3, 1)
    norms = np.linalg.norm(maps.reshape(2, -1, model.primary.size), axis=2)
    np.testing.assert_allclose(found["none"], norms, rtol=1e-5)
    np.testing.assert_allclose(found["tanh"], np.tanh(norms), rtol=1e-5)


def test_kinds_are_measured_and_drawn(monkeypatch, capsys):
    whole = squash.parts(quick=True)
    short = {"data": "strokes", "validation": 10, "batch_size": 16}
    wanted = ("both-paper", "end-half", "middle-none")
    monkeypatch.setattr(squash, "parts", lambda quick: {p: whole[p] | short for p in wanted})
    assert command.main(["squash", "--quick", "--device", "cpu"]) == 0
    assert "paper in both layers" in capsys.readouterr().out
    report = json.loads((FOLDER / "squash.json").read_text())
    names = ["paper in both layers", "half at the end", "none in the middle"]
    assert [row[0] for row in report["table"]] == ["squash", *names]
    assert report["headline"][1][1] == squash.SOURCE["end-half"]
    assert (FOLDER / "squash.png").stat().st_size > 10_000
    for part, entry in json.loads((FOLDER / "squash/seed-0.json").read_text()).items():
        low, median, high = entry["figures"]["lengths"]
        assert 0 <= low <= median <= high
        assert high < 1 or part == "middle-none"
        assert entry["figures"]["accuracy"] == pytest.approx(
            json.loads(Path(FOLDER, f"{part}-seed-0", "summary.json").read_text())["test_accuracy"]
        )
