"""pairs: networks that differ in one choice, and sum pooling with the weights of mean pooling."""

import numpy as np
import pytest

from minicaps import Tensor
from minicaps.backend import choose_device
from minicaps.cli.signals import StopRequest
from minicaps.experiments import lab, pairs
from minicaps.experiments.settings import written_out
from minicaps.train.options import complete


def test_poolings_differ_in_the_pooling_only():
    parts = {name: complete(written_out(own)).to_dict() for name, own in pairs.parts(False).items()}
    for name in ("pooling-sum", "pooling-max"):
        one, two = parts["pooling"], parts[name]
        assert {key for key in one if one[key] != two[key] and key != "out"} == {"pooling"}
    assert {own["absent_weight"] for own in parts.values()} == {0.25}
    assert {own["epochs"] for own in parts.values()} == {10}


@pytest.mark.slow
def test_a_sum_has_the_weights_of_the_mean_and_sees_more_in_larger_images(monkeypatch, tmp_path):
    common = {"data": "strokes", "model": "pooling-cnn", "validation": 10, "batch_size": 8}
    common |= {"epochs": 1, "shift": 0}
    parts = {"pooling": common, "pooling-sum": common | {"pooling": "sum"}}
    monkeypatch.setattr(pairs, "parts", lambda quick: parts)
    there = lab.Lab(tmp_path, True, choose_device("cpu"), None, StopRequest())
    mean, total = (pairs.measure(there, part, own, 0) for part, own in parts.items())
    assert [path.name for path in tmp_path.iterdir()] == ["pooling-seed-0"]
    assert mean["single"] == total["single"]
    model = there.model(tmp_path / "pooling-seed-0")
    images = Tensor(np.random.default_rng(0).random((2, 1, 32, 16), np.float32))
    as_mean = model(images).activations.data
    model.pooling = "sum"
    assert not np.allclose(model(images).activations.data, as_mean, atol=1e-4)
