"""Models from checkpoints: which are refused."""

import pytest
from thinning import thinned
from tiny_runs import edit, run

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
