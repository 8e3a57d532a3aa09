"""How good a model is on a whole split: its mean loss, and the number of right answers."""

import numpy as np

from minicaps.data.batches import batches
from minicaps.errors import Interrupted
from minicaps.graph import no_grad
from minicaps.models.losses import classification_loss
from minicaps.models.multilabel import answers_of, right_answers
from minicaps.tensor import Tensor

EVALUATION_BATCH = 250  # pictures at once, where nothing is learned


def evaluate(model, split, device, loss, *, dtype=np.float32, stop=False, answers=None):
    """Return (mean loss, number of right answers) of `model` on all of `split`.

    loss: its name, one of `minicaps.models.losses.LOSSES`. Which answers are right: see
    `minicaps.models.multilabel.right_answers`. answers: zeros (J,) on the device, to which the
    number of answers of each class is added. The sums stay on the device until the end.
    """
    was_training, total, right = model.training, 0, 0
    model.eval()
    try:
        with no_grad():
            for images, labels in batches(split, EVALUATION_BATCH):
                if stop:
                    raise Interrupted
                images = device.put(images).astype(dtype, copy=False)
                labels = device.put(labels)
                activations = model(Tensor(images)).activations
                mean = classification_loss(loss, model, activations, labels)
                total = total + mean.data * len(labels)
                right = right + right_answers(model, activations.data, labels).sum()
                if answers is not None:
                    answers += answers_of(model, activations.data, labels).sum(axis=0)
    finally:
        model.train(was_training)
    return float(total) / len(split), int(right)
