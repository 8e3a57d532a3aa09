"""dynamic: the networks compute what they do elsewhere, with couplings from elsewhere."""

import json
from pathlib import Path

import numpy as np
import pytest

from minicaps import Tensor, data, models
from minicaps.backend import choose_device
from minicaps.cli.signals import StopRequest
from minicaps.experiments import __main__ as command
from minicaps.experiments import dynamic, lab
from minicaps.experiments.significance import only


@pytest.fixture
def there():
    return lab.Lab(Path("runs"), True, choose_device("cpu"), None, StopRequest())


NETWORKS = {
    "capsnet": {"preset": "small", "decoder": False},
    "capsule-cnn": {"update": "spherical"},
}


def network(name, iterations):
    own = NETWORKS[name] if iterations > 1 else NETWORKS[name] | {"update": None}
    known = models.options_of(name)
    options = {key: value for key, value in own.items() if key in known}
    return models.build(name, (1, 16, 16), 10, iterations=iterations, **options)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("iterations", [1, 3])
def test_own_couplings_give_the_network_itself(there, name, iterations):
    """Equal couplings are one iteration; both networks of the same seed have the same weights."""
    images = np.random.default_rng(0).random((6, 1, 16, 16), np.float32)
    split = data.Split(images, np.zeros(6, int))
    trained, asked = network(name, 3), network(name, iterations)
    children = there.outputs(trained, lambda x: dynamic.children_of(trained, x), split)
    couplings = dynamic.own_couplings(there, trained, children, iterations)
    lengths = dynamic.lengths(there, trained, children, couplings)
    routed = asked(Tensor(images))
    np.testing.assert_allclose(couplings, routed.couplings.numpy(), atol=1e-6)
    np.testing.assert_allclose(lengths, routed.activations.numpy(), atol=1e-6)


def test_partners_share_all_classes_or_none():
    labels = np.zeros((600, 10), np.uint8)
    for row, k in zip(labels, np.random.default_rng(0).integers(0, 90, 600), strict=True):
        row[[k // 9, (k // 9 + 1 + k % 9) % 10]] = 1
    same, other = dynamic.partners(labels, seed=0)
    np.testing.assert_array_equal(labels[same], labels)
    assert (labels[other] & labels).max() == 0
    alone = (labels @ labels.T.astype(int) == 2).sum(axis=1) == 1
    np.testing.assert_array_equal(same == np.arange(600), alone)
    assert len(np.unique(same)) == 600


def test_predictions_are_compared_by_hand():
    """Four images of class 0: kept, lost, gained, and wrong in two ways."""
    present = np.eye(3, dtype=bool)[[0, 0, 0, 0]]
    own, others = (np.eye(3, dtype=bool)[k] for k in ([0, 0, 1, 1], [0, 1, 0, 2]))
    found = dynamic.compared(others, own, present)
    assert found == {"accuracy": 0.5, "changed": 0.75, "lost": 1, "gained": 1}


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
