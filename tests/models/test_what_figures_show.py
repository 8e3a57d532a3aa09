"""Test what figures of a network show: visible effects, strongest first, and kernels by use."""

import numpy as np

from minicaps import models
from minicaps.data import Split
from minicaps.models import inspection

OFFSETS = np.linspace(-0.25, 0.25, 3)


def network(**options):
    return models.build("capsnet", (1, 20, 20), 2, preset="small", **options)


def drawing(effects):
    """Return a stand-in for `sweep`: component k adds effects[k] times its offset to a pixel."""

    def sweep(model, poses, keep, offsets):
        drawn = np.full((len(effects), len(offsets), 1, 4, 4), 0.5)
        for k, effect in enumerate(effects):
            drawn[k, :, 0, k, 0] += effect * offsets
        return drawn

    return sweep


def test_components_without_a_visible_effect_are_left_out(monkeypatch):
    monkeypatch.setattr(inspection, "sweep", drawing([0.1, 1.0, 0, 0.8]))
    drawn, order, offsets = inspection.visible_sweep(None, None, 0, OFFSETS)
    assert order.tolist() == [1, 3] and drawn.shape == (2, 3, 1, 4, 4)
    np.testing.assert_allclose(np.ptp(drawn[:, :, 0], axis=1).max(axis=(1, 2)), [0.5, 0.4])
    np.testing.assert_allclose(offsets, OFFSETS)


def test_offsets_grow_until_changes_are_visible(monkeypatch):
    for effect, scale, rows in ((0.5, 2, 1), (0.2, 4, 1), (0.01, 4, 0)):
        monkeypatch.setattr(inspection, "sweep", drawing([0, effect]))
        drawn, order, offsets = inspection.visible_sweep(None, None, 0, OFFSETS)
        np.testing.assert_allclose(offsets, scale * OFFSETS)
        assert order.tolist() == [1][:rows] and len(drawn) == rows


def test_components_are_alike_if_one_image_explains_their_effects():
    different = drawing([1, 1])(None, None, 0, OFFSETS)
    assert not inspection.alike(different) and not inspection.alike(different[:1])
    assert inspection.alike(different[[0, 0, 0]] * np.reshape([0.1, 1, -1], (3, 1, 1, 1, 1)))


def test_the_spread_of_a_pose_is_that_of_its_class():
    model, rng = network(), np.random.default_rng(0)
    split = Split(rng.random((6, 1, 20, 20), np.float32), np.arange(6) % 2)
    poses = [inspection.view(model, split.images[k]).poses[1] for k in (1, 3, 5)]
    spread = inspection.pose_spread(model, split, 1)
    np.testing.assert_allclose(spread, np.std(poses, axis=0), atol=1e-7)


def test_kernels_are_sorted_by_their_use_whatever_their_scale():
    model = network()
    first, second = (layer.weight for layer in model.convolutions)
    first.data[7] *= 10  # used more
    first.data[5] *= 100  # as before: the next layer takes it back
    second.data[:, 5] /= 100
    kernels = inspection.first_kernels(model)
    np.testing.assert_array_equal(kernels[0], first.data[7])
    assert not np.array_equal(kernels[1], first.data[5])


def test_a_blank_image_is_passed_over_if_there_is_another():
    images = np.zeros((4, 3, 5, 5), np.float32)
    images[:, 0] = 0.9  # a uniform color is blank too
    images[2, 1, 0, 0] = 0.5
    split = Split(images, np.zeros(4, int))
    assert inspection.first_clear(split, np.arange(4)) == 2
    assert inspection.first_clear(split, np.array([3, 1])) == 3
