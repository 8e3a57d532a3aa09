"""An ONNX graph computes what its network computes."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from minicaps import models  # noqa: E402
from minicaps.bench.cases import inference  # noqa: E402
from minicaps.export.onnx_graph import Graph, capsnet_graph, squash  # noqa: E402

IMAGE = (2, 20, 20)


def outputs(graph, **inputs):
    """Check the graph, and run it as it is, without optimization."""
    onnx.checker.check_model(graph, full_check=True)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        graph.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, inputs)[0]


def capsnet(**options):
    return models.build("capsnet", IMAGE, 5, preset="small", seed=1, **options)


@pytest.mark.parametrize("preset", models.CAPSNET_PRESETS)
@pytest.mark.parametrize("batch", [1, 3])
def test_a_graph_has_the_lengths_of_the_network_for_any_batch(preset, batch):
    model = models.build("capsnet", IMAGE, 5, preset=preset, seed=1)
    images = np.random.default_rng(0).random((batch, *IMAGE), dtype=np.float32)
    found = outputs(capsnet_graph(model), images=images)
    np.testing.assert_allclose(found, inference(model, images)(), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {"iterations": 1},
        {"iterations": 2},
        {"iterations": 5},
        {"gradient": "stop"},
        {"decoder": False},
    ],
)
def test_a_graph_follows_the_options_of_the_network(options):
    model = capsnet(**options)
    images = np.random.default_rng(0).random((3, *IMAGE), dtype=np.float32)
    expected = inference(model, images)()
    found = outputs(capsnet_graph(model), images=images)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {"routing": "leaky"},
        {"routing": "distance"},
        {"routing": "learned"},
        {"update": "recompute"},
        {"inverse_temperature": 2.0},
        {"squash": "tanh"},
        {"shared": True},
        {"primary_squash": "half"},
    ],
)
def test_a_network_that_no_graph_computes_is_refused(options):
    with pytest.raises(ValueError, match="only a CapsNet with the paper's routing"):
        capsnet_graph(capsnet(**options))


def test_another_network_is_refused():
    model = models.build("baseline-cnn", IMAGE, 5)
    with pytest.raises(ValueError, match="only a CapsNet can be an ONNX graph, not a"):
        capsnet_graph(model)


def test_squash_leaves_the_zero_vector():
    graph = Graph()
    squash(graph, "s", axis=1)
    graph.add("Identity", graph.nodes[-1].output[0], output="v")
    s = np.array([[0, 0], [3, 4]], np.float32)
    v = outputs(graph.model({"s": ("B", 2)}, {"v": ("B", 2)}), s=s)
    np.testing.assert_allclose(v, [[0, 0], [15 / 26, 20 / 26]], rtol=1e-6)
