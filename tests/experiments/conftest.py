"""Experiments small enough for tests: tiny runs on few and small images."""

import pytest

from minicaps import data
from minicaps.experiments import lab


@pytest.fixture(autouse=True)
def few(monkeypatch, tiny):
    """Load few and small images: 16×16 pixels are little more than `capsule-cnn` needs."""

    def load(*args):
        whole = original(*args)
        train, test = (
            data.Split(split.images[:, :, 6:22, 6:22], split.labels, split.poses)
            for split in (whole.train, whole.test)
        )
        return data.Dataset(whole.name, train, test, whole.class_names)

    original = data._load
    monkeypatch.setattr(data, "_load", load)
    monkeypatch.setattr(lab, "QUICK_TRAINING", 40)
    monkeypatch.setattr(lab, "QUICK_TEST", 20)
