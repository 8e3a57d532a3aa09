"""Models restored from checkpoints, and the checkpoints that are rejected."""

import numpy as np
import pytest
from thinning import thinned
from tiny_runs import edit, run

from minicaps import Tensor, models, no_grad
from minicaps.backend import choose_device
from minicaps.errors import CheckpointError
from minicaps.runs import checkpoint
from minicaps.runs.building import load_model

CPU = choose_device("cpu")
pytestmark = pytest.mark.usefixtures("tiny")


@pytest.mark.parametrize(
    "change",
    thinned(
        [{"classes": 11}, {"input_shape": [1, 36, 36]}, {"name": "capsnot"}, {"options": {"x": 1}}]
    ),
    ids=str,
)
def test_a_model_that_does_not_fit_its_parameters_is_refused(change):
    path = run() / "best.npz"
    edit(path, lambda meta: meta["model"].update(change))
    with pytest.raises(CheckpointError, match=r"best\.npz"):
        load_model(path, CPU)


def test_a_checkpoint_without_a_model_is_refused():
    checkpoint.save("a.npz", {}, {"model": {"name": "capsnet"}})
    checkpoint.save("b.npz", {}, {})
    for path in ("a.npz", "b.npz"):
        with pytest.raises(CheckpointError, match=path):
            load_model(path, CPU)


@pytest.mark.parametrize("model", ["baseline-cnn", "capsule-cnn", "matrix-capsnet"])
def test_a_loaded_model_answers_one_image_as_it_answers_the_batch(model):
    """This includes batch norm and dropout; prediction does not change the model."""
    built = models.build(model, (1, 14, 14), 3, batch_norm=True)
    for step in range(2):  # running statistics that differ from those of one image
        built(Tensor(images(step, 20)))
    saved = checkpoint.pack(model=built.state_dict())
    checkpoint.save("model.npz", saved, {"model": built.config})
    loaded = load_model("model.npz", "cpu")
    before = loaded.state_dict()
    with no_grad():
        together = loaded(Tensor(images(9, 7))).activations.numpy()
        alone = [loaded(Tensor(one[None])).activations.numpy()[0] for one in images(9, 7)]
    np.testing.assert_allclose(alone, together, rtol=1e-4, atol=1e-5)
    for name, array in loaded.state_dict().items():
        np.testing.assert_array_equal(array, before[name])


def images(seed, number):
    return np.random.default_rng(seed).random((number, 1, 14, 14), np.float32)
