"""Compute activations, the mean loss, or the number of correct predictions for a whole split.

Several ranks share the batches of a split, so all of them must call these functions; all get the
same results, which do not depend on the number of ranks.
"""

import numpy as np
from tqdm import tqdm

from minicaps import ranks
from minicaps.backend import array_module, to_host
from minicaps.data.batches import number_of_batches
from minicaps.errors import CheckpointError, Interrupted
from minicaps.graph import no_grad
from minicaps.models.base import EVALUATION_BATCH, evaluating
from minicaps.models.inputs import tensor_for
from minicaps.models.losses import classification_loss
from minicaps.models.multilabel import answers_of, right_answers
from minicaps.ops.targets import one_hot


def batches_for(model, split, size, *, stop=False):
    """Yield batches (images, labels) of a split, with the images converted to a Tensor for `model`.

    Of n ranks, rank r gets the batches r, r + n, r + 2n, … size: batch size. Raises Interrupted as
    soon as `stop` becomes true on any rank.
    """
    count, turn = number_of_batches(len(split), size), ranks.count()
    for first in range(0, count, turn):
        if ranks.agree(stop):
            raise Interrupted
        if (own := first + ranks.rank()) < count:
            images, labels = split.pick(np.arange(own * size, min((own + 1) * size, len(split))))
            images = tensor_for(model, images)
            yield images, array_module(images.data).asarray(labels)


def _in_order(found):
    """Return what all ranks found for their batches in the order of the batches."""
    every = ranks.gather(found)
    return [own[k] for k in range(len(every[0])) for own in every if k < len(own)]


def outputs(model, function, split, size, *, stop=False) -> np.ndarray:
    """Apply a function to all images of a split and return the results (n, ...) on the host.

    function: maps a Tensor of images for `model` to a Tensor. size, stop: see `batches_for`.
    """
    with no_grad():
        found = [
            to_host(function(images).data)
            for images, _ in batches_for(model, split, size, stop=stop)
        ]
    return np.concatenate(_in_order(found))


def classify(model, split, size=EVALUATION_BATCH, *, quiet=True, path="the model"):
    """Return the class activations (n, J) for all images of `split` as an array on the host.

    path: the model's checkpoint, for messages. Raises CheckpointError if an activation is
    infinite or NaN.
    """
    bar = _bar(split, quiet)

    def activations_of(images):
        activations = model(images).activations
        _advance(bar, len(activations.data))
        return activations

    with bar:
        activations = outputs(model, activations_of, split, size)
    if not np.isfinite(activations).all():
        count = (~np.isfinite(activations).all(axis=1)).sum()
        raise CheckpointError(
            f"the scores of {count:,} of {len(split):,} images are infinite or NaN: training"
            f" diverged, or {path} is damaged; evaluate an earlier checkpoint"
        )
    return activations


def _bar(split, quiet, what=None):
    """Return a progress bar for the images of a split, which appears after a second."""
    off = True if quiet else None  # None: show no bar in a file or a pipe
    shown = {"desc": what, "delay": 1, "leave": False, "disable": off}
    return tqdm(total=len(split), unit=" images", unit_scale=True, **shown)


def _advance(bar, images):
    """Move a progress bar by a batch, and by those of the other ranks."""
    bar.update(min(images * ranks.count(), bar.total - bar.n))


def evaluate(model, split, loss, *, stop=False, counts=None, progress=None):
    """Return the mean loss and the number of correct predictions of `model` on `split`.

    loss: one of the names in `minicaps.models.losses.LOSSES`. Predictions are counted as correct by
    `minicaps.models.multilabel.right_answers`. counts: zeros (2, J) on the device, to which the
    numbers of predictions and of correct predictions of each class are added. All sums stay on the
    device until the evaluation is complete. progress: name of a progress bar on a terminal, or None
    for no bar.
    """
    losses, right = [], 0
    with evaluating(model), no_grad(), _bar(split, progress is None, progress) as bar:
        for images, labels in batches_for(model, split, EVALUATION_BATCH, stop=stop):
            activations = model(images).activations
            mean = classification_loss(loss, model, activations, labels)
            losses.append(mean.data * len(labels))
            right = right + right_answers(model, activations.data, labels).sum()
            if counts is not None:
                answers = answers_of(model, activations.data, labels)
                counts[0] += answers.sum(axis=0)
                counts[1] += (answers & (one_hot(labels, activations.data) > 0)).sum(axis=0)
            _advance(bar, len(labels))
    losses, right = _in_order([*map(to_host, losses)]), ranks.total(np.array(int(right)))
    if counts is not None:
        counts[...] = array_module(counts).asarray(ranks.total(to_host(counts)))
    return float(sum(losses)) / len(split), int(right)
