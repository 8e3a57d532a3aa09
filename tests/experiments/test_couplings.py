"""The networks compute what they do elsewhere, with couplings from elsewhere."""

from pathlib import Path

import numpy as np
import pytest

from minicaps import Tensor, data, models
from minicaps.backend import choose_device
from minicaps.cli.signals import StopRequest
from minicaps.experiments import couplings, lab


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
    children = there.outputs(trained, lambda x: couplings.children_of(trained, x), split)
    own = couplings.own_couplings(there, trained, children, iterations)
    lengths = couplings.lengths(there, trained, children, own)
    routed = asked(Tensor(images))
    np.testing.assert_allclose(own, routed.couplings.numpy(), atol=1e-6)
    np.testing.assert_allclose(lengths, routed.activations.numpy(), atol=1e-6)


def test_partners_share_all_classes_or_none():
    labels = np.zeros((600, 10), np.uint8)
    for row, k in zip(labels, np.random.default_rng(0).integers(0, 90, 600), strict=True):
        row[[k // 9, (k // 9 + 1 + k % 9) % 10]] = 1
    same, other = couplings.partners(labels, seed=0)
    np.testing.assert_array_equal(labels[same], labels)
    assert (labels[other] & labels).max() == 0
    alone = (labels @ labels.T.astype(int) == 2).sum(axis=1) == 1
    np.testing.assert_array_equal(same == np.arange(600), alone)
    assert len(np.unique(same)) == 600


def test_predictions_are_compared_by_hand():
    """Four images of class 0: kept, lost, gained, and wrong in two ways."""
    present = np.eye(3, dtype=bool)[[0, 0, 0, 0]]
    own, others = (np.eye(3, dtype=bool)[k] for k in ([0, 0, 1, 1], [0, 1, 0, 2]))
    found = couplings.compared(others, own, present)
    assert found == {"accuracy": 0.5, "changed": 0.75, "lost": 1, "gained": 1}
