"""Mean loss and number of correct predictions of a model on a split."""

import numpy as np
import pytest
from thinning import thinned

from minicaps import Tensor, data, models
from minicaps.errors import Interrupted
from minicaps.nn import Module
from minicaps.routing import Routed
from minicaps.runs import inference
from minicaps.runs.inference import evaluate


def test_evaluation_counts_samples_not_batches(monkeypatch):
    """Ten samples in batches of 4, 4 and 2, of which 4, 4 and 1 are correct: 9 in all."""

    class Reads(Module):
        """Network that reads its lengths from the image."""

        logits = False

        def __init__(self):
            self.unused = Tensor(np.zeros(1, np.float32), requires_grad=True)

        def forward(self, images):
            return Routed(None, images[:, 0, 0], None)

    labels = np.arange(10) % 3
    lengths = np.eye(3, dtype=np.float32)[labels]
    lengths[9] = [0.2, 0.9, 0.1]  # label 0
    split = data.Split(lengths[:, None, None], labels)
    monkeypatch.setattr(inference, "EVALUATION_BATCH", 4)
    model = Reads()
    loss, right = evaluate(model, split, "margin")
    assert right == 9
    assert loss == pytest.approx((0.7**2 + 0.5 * 0.8**2) / 10)
    assert model.training


@pytest.mark.parametrize("mode", thinned([True, False]))
@pytest.mark.parametrize("stop", [True, False])
def test_evaluation_leaves_the_mode_of_the_model(mode, stop):
    model = models.build("capsule-cnn", (1, 28, 28), 10).train(mode)
    split = data.load("strokes", limit=4).test.take(np.arange(4))
    try:
        evaluate(model, split, "margin", stop=stop)
    except Interrupted:
        assert stop
    assert model.training is mode
