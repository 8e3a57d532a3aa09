"""An ONNX graph computes what its network computes."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from thinning import thinned

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from made_runs import network, probabilities, random_images
from onnx.reference import ReferenceEvaluator
from onnx_outputs import outputs

from minicaps import models
from minicaps.errors import UserError
from minicaps.export import onnx_routings
from minicaps.export.onnx_networks import network_graph
from minicaps.models.cnn import POOLINGS
from minicaps.ops.capsule import SQUASHES
from minicaps.routing import ROUTINGS, UPDATES

IMAGE, GRAY = (2, 20, 20), (1, 20, 20)
IMPLICIT = {"gradient": "implicit", "iterations": 30}
COOL = {"inverse_temperature": 0.2, **IMPLICIT}  # converges
AGREEMENT = [{"update": update} for update in UPDATES]
AGREEMENT += [{"iterations": 1}, {"iterations": 5}, {"inverse_temperature": 2.5}]
AGREEMENT += [{"gradient": "stop"}, {"update": "recompute", **IMPLICIT}]
VECTORS = [{"routing": name} for name in (*ROUTINGS, "learned")] + AGREEMENT
VECTORS += [{"routing": "leaky", **options} for options in AGREEMENT[1:6]]
VECTORS += [{"routing": "distance", **options} for options in ({"iterations": 1}, COOL)]
VECTORS += [{"squash": kind} for kind in (*SQUASHES, "none")]
BATCH_NORM = [{}, {"batch_norm": True}]
EM = [*BATCH_NORM, {"iterations": 1}, {"iterations": 4, "gradient": "stop"}]
EM += [{"step": "input-activation"}, {"inverse_temperature": 0.02}]
CASES = {
    "capsnet": [*VECTORS, {"decoder": False}, {"primary_squash": "half"}, {"shared": True}],
    "capsule-cnn": [*VECTORS, *BATCH_NORM],
    "pooling-cnn": [*BATCH_NORM, *({"pooling": kind} for kind in POOLINGS)],
    "baseline-cnn": [*BATCH_NORM, {"dropout": 0.9}],
    "dense-cnn": [{}],
    "matrix-capsnet": EM,
}


def check(model, images, atol=2e-6):
    """A graph has the probabilities of the network for any batch."""
    expected = probabilities(model, images)
    assert np.ptp(expected, axis=1).max() > 0.01  # the classes differ
    graph = network_graph(model)
    for count in (0, 1, len(images)):
        found = outputs(graph, images=images[:count])
        np.testing.assert_allclose(found, expected[:count], rtol=1e-5, atol=atol)


def test_every_network_has_a_case():
    assert CASES.keys() == models.MODELS.keys()


@pytest.mark.parametrize(
    "name, options", [(name, options) for name in CASES for options in CASES[name]], ids=str
)
def test_a_graph_computes_what_its_network_computes(name, options):
    image = (2, 10, 8) if name == "baseline-cnn" else IMAGE
    check(network(name, image, **options), random_images(3, image))


@pytest.mark.parametrize(
    "name, preset",
    [("capsnet", "paper"), ("dense-cnn", "paper"), ("matrix-capsnet", "paper")],
)
@pytest.mark.parametrize("image", thinned([(1, 17, 22), (3, 21, 19)]))
def test_a_graph_of_the_preset_of_a_paper_takes_images_of_any_shape(name, preset, image):
    check(network(name, image, preset=preset), random_images(2, image))


@pytest.mark.parametrize("name", CASES)
def test_onnx_itself_computes_the_same_as_onnx_runtime(name):
    """The graph does not rely on anything that is peculiar to ONNX Runtime."""
    image = (1, 6, 5) if name == "baseline-cnn" else (1, 17, 18)
    model, images = network(name, image), random_images(2, image)
    (found,) = ReferenceEvaluator(network_graph(model)).run(None, {"images": images})
    np.testing.assert_allclose(found, probabilities(model, images), rtol=0, atol=2e-6)


@pytest.mark.parametrize("loss", ["margin", "cross-entropy", "spread"])
@pytest.mark.parametrize("multi", [False, True])
@pytest.mark.parametrize("name", ["capsnet", "pooling-cnn", "dense-cnn"])
def test_a_graph_returns_the_probabilities_of_a_prediction(name, multi, loss):
    model, images = network(name, GRAY), random_images(3, GRAY)
    model.loss, model.multi = loss, multi
    found = outputs(network_graph(model), images=images)
    np.testing.assert_allclose(found, model.predict(images).probabilities, rtol=1e-5)


def test_a_graph_swaps_light_and_dark_if_the_training_images_were_inverted():
    model, images = network("capsnet", GRAY), random_images(3, GRAY)
    model.preprocessing = replace(model.preprocessing, inverted=True)
    found = outputs(network_graph(model), images=images)
    np.testing.assert_allclose(found, model.predict(images).probabilities, rtol=1e-5)


def test_a_network_in_double_precision_has_a_graph_in_single_precision():
    model = network("capsnet", IMAGE).astype(np.float64)
    found = outputs(network_graph(model), images=random_images(3, IMAGE))
    expected = probabilities(model, random_images(3, IMAGE).astype(np.float64))
    np.testing.assert_allclose(found, expected, atol=2e-6)


def test_a_blank_image_has_finite_probabilities():
    small = {"preset": "small"}
    for name, options in (("capsule-cnn", {}), ("matrix-capsnet", small), ("capsnet", small)):
        model = models.build(name, IMAGE, 5, **options)  # its biases, and thus its maps, are zero
        blank = np.zeros((2, *IMAGE), np.float32)
        found = outputs(network_graph(model), images=blank)
        np.testing.assert_allclose(found, probabilities(model, blank), atol=1e-6)


def test_another_network_is_refused():
    class Other(models.CapsNet):
        pass

    model = network("capsnet", IMAGE)
    model.__class__ = Other
    with pytest.raises(UserError, match="a Other cannot be exported to ONNX, only CapsNet, "):
        network_graph(model)


def test_another_routing_is_refused():
    model = network("capsnet", IMAGE)
    model.classes.routing.route = partial(lambda votes, **_: None)
    with pytest.raises(UserError, match=r"lambda> routing cannot be exported to ONNX: choose --to"):
        network_graph(model)


@pytest.mark.parametrize("name", ["capsnet", "capsule-cnn", "matrix-capsnet"])
def test_too_many_iterations_are_refused(name):
    message = f"501 iterations cannot be exported to ONNX, where at most {onnx_routings.MOST}"
    with pytest.raises(UserError, match=message):
        network_graph(network(name, IMAGE, iterations=onnx_routings.MOST + 1))
