"""Test the dense CNN, the counterpart of the CapsNet without capsules."""

import numpy as np
import pytest
from scipy.signal import correlate

from minicaps import models, ops
from minicaps.gradcheck import check_gradients
from minicaps.tensor import Tensor

TINY = {
    "convolutions": ((3, 3, 1),),
    "primary": (2, 2, 3, 2),
    "capsule_size": 3,
    "hidden": (4,),
}


@pytest.fixture
def tiny(monkeypatch):
    """Build a network with input shape (2, 8, 7) and 3 classes in double precision."""
    monkeypatch.setitem(models.CAPSNET_PRESETS, "small", TINY)
    model = models.build("dense-cnn", (2, 8, 7), 3, preset="small")
    model.astype(np.float64)
    for n, p in enumerate(model.parameters()):  # including the biases
        p.data = np.random.default_rng(n).normal(size=p.shape) / 2
    return model


@pytest.mark.parametrize("preset", ["small", "paper"])
@pytest.mark.parametrize("size", [28, 40])
def test_it_has_as_many_parameters_as_a_capsnet(preset, size):
    shape, classes = (1, size, size), 10
    capsules = models.build("capsnet", shape, classes, preset=preset, decoder=False)
    dense = models.build("dense-cnn", shape, classes, preset=preset)
    more = dense.number_of_parameters() - capsules.number_of_parameters()
    assert more == 160 + 160 * 10 + 10  # the biases of the hidden layer, and the last layer


def test_it_is_its_layers_one_after_the_other(tiny):
    image = np.random.default_rng(1).random((1, 2, 8, 7))
    found = tiny(Tensor(image))
    x = image[0]
    for layer, stride in zip(tiny.convolutions, (1, 2), strict=True):
        maps = [
            correlate(x, kernel, "valid")[0] + bias
            for kernel, bias in zip(layer.weight.data, layer.bias.data, strict=True)
        ]
        x = np.maximum(np.array(maps)[:, ::stride, ::stride], 0)
    x = np.moveaxis(x, 0, -1).ravel()
    for layer in (tiny.hidden, tiny.classes):
        x = np.maximum(x, 0) @ layer.weight.data + layer.bias.data
    np.testing.assert_allclose(found.activations.data[0], x, rtol=1e-12)
    assert found.poses is None and found.couplings is None


def test_the_decoder_draws_from_the_hidden_units_of_one_class(monkeypatch):
    """Units of other classes leave the drawing alone; the scores are those without a decoder."""
    monkeypatch.setitem(models.CAPSNET_PRESETS, "small", TINY)
    bare, drawing = (
        models.build("dense-cnn", (2, 8, 7), 3, preset="small", decoder=decoder)
        for decoder in (False, True)
    )
    images, keep = (
        Tensor(np.random.default_rng(1).random((4, 2, 8, 7), np.float32)),
        np.arange(4) % 3,
    )
    found = drawing(images)
    np.testing.assert_array_equal(found.activations.data, bare(images).activations.data)
    units = found.poses.data
    scores = units.reshape(4, 9) @ drawing.classes.weight.data + drawing.classes.bias.data
    np.testing.assert_allclose(found.activations.data, scores, rtol=1e-5)
    others = units + np.where(np.arange(3)[:, None] == keep[:, None, None], 0, 7).astype("f")
    drawn, same = (drawing.reconstruct(Tensor(poses), keep).data for poses in (units, others))
    assert drawn.shape == (4, 2, 8, 7) and np.array_equal(drawn, same)
    changed = drawing.reconstruct(Tensor(units + np.float32(7)), keep).data
    assert np.abs(changed - drawn).max(axis=(1, 2, 3)).min() > 0
    with pytest.raises(ValueError, match="no decoder: build it with decoder=True"):
        bare.reconstruct(found.poses, keep)


def test_its_gradients(tiny):
    images, labels = np.random.default_rng(2).random((3, 2, 8, 7)), np.array([0, 2, 1])
    check_gradients(lambda x: ops.cross_entropy(tiny(x).activations, labels), images)


def test_images_of_other_sizes_are_refused(tiny):
    with pytest.raises(ValueError, match=r"with \(C, H, W\) = \(2, 8, 7\)"):
        tiny(Tensor(np.ones((1, 2, 7, 8))))
    with pytest.raises(ValueError, match=r"3×9 pixels are too small .* at least 5×5"):
        models.build("dense-cnn", (2, 3, 9), 3, preset="small")
