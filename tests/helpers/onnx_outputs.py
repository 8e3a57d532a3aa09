"""Run ONNX graphs in tests, and build networks whose every parameter matters."""

import numpy as np
import onnx
import onnxruntime

from minicaps import Tensor, models, no_grad

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


def network(name, image=IMAGE, **options):
    """Build a network of five classes in evaluation mode, without zeros among its parameters."""
    if "preset" in models.options_of(name):
        options.setdefault("preset", "small")
    model, rng = models.build(name, image, 5, seed=1, **options), np.random.default_rng(2)
    state = model.state_dict()
    for key, array in state.items():
        size = 0.1 * np.sqrt((array**2).mean()) or 0.1
        size = 200 if "beta_a" in key else size  # EM multiplies it by λ, which is about 0.001
        array = array + size * rng.standard_normal(array.shape)
        state[key] = (abs(array) if key.endswith("variance") else array).astype(np.float32)
    model.load_state_dict(state)
    return model.eval()


def probabilities(model, images):
    with no_grad():
        return model.probabilities(model(Tensor(images)).activations).numpy()


def random_images(count, image=IMAGE):
    return np.random.default_rng(0).random((count, *image), dtype=np.float32)
