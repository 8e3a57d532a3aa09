"""Predictions and per-class reconstructions for multi-label images."""

from functools import reduce

import numpy as np

from minicaps import ops
from minicaps.backend import array_module, to_host
from minicaps.graph import no_grad
from minicaps.models.inputs import tensor_for
from minicaps.ops.targets import one_hot

SEEN = 0.5  # classes with a higher activation are predicted; the threshold of a logit is 0


def seen(activations, logits=False):
    """Return a boolean array (B, J) that marks the classes predicted to be present in each image.

    The probability of a class is the length of its capsule (Sabour et al. 2017, section 2) or the
    sigmoid of its logit. A class is predicted if its probability exceeds one half.
    """
    return activations > (0 if logits else SEEN)


def highest(activations, count):
    """Mark the `count` highest activations of each image in a boolean array (B, J).

    activations: (B, J), on the host; if activations are equal, the lower class index comes first.
    count: one number for all images, or an array (B, 1).
    """
    order = np.argsort(-activations, axis=1, kind="stable")
    return np.argsort(order, axis=1) < count


def answers_of(model, activations, labels):
    """Mark the predicted classes of each sample in a boolean array (B, J).

    activations: (B, J). For labels of shape (B,), the class with the highest activation is
    predicted. For labels of shape (B, J), all classes marked by `seen` are predicted.
    """
    if labels.ndim == 2:
        return seen(activations, model.logits)
    return one_hot(activations.argmax(axis=1), activations) > 0


def right_answers(model, activations, labels):
    """Mark the correctly classified samples in a boolean array (B,).

    activations: (B, J). For labels of shape (B,), the correct class must have the highest
    activation. For labels of shape (B, J), the predicted classes must be exactly the classes
    present.
    """
    if labels.ndim == 1:
        return activations.argmax(axis=1) == labels
    return (seen(activations, model.logits) == (labels > 0)).all(axis=1)


def one_at_a_time(labels):
    """Split labels (B, J) of zeros and ones into arrays with at most one class per sample.

    The first array contains the first class of each sample, the second array contains the second
    class, and so on. The number of arrays is the largest number of classes in any sample, but at
    least one.
    """
    turn = np.cumsum(labels, axis=1, dtype=np.int64) * labels
    return [(turn == k).astype(labels.dtype) for k in range(1, max(1, turn.max(initial=0)) + 1)]


def reconstruction_loss(model, poses, keep, images, parts=None, *, weight):
    """Compute the reconstruction loss, running the decoder once per class present.

    Each run decodes the capsule of a single class, and absent classes are not decoded. If `parts`
    is given, the loss is averaged over the runs, as for the pairs of digits in Sabour et al. (2017,
    section 6). Otherwise, the pixelwise maximum of the reconstructions is compared with the image.

    poses: (B, J, D).
    keep: the capsules to decode in each run: a list of labels (B,), or result of `one_at_a_time`.
    images: (B, C, H, W).
    parts: (B, k, C, H, W), the targets of the k runs for composed images, in the order of classes.
    weight: factor of the loss.
    """
    drawn = [model.reconstruct(poses, one) for one in keep]
    if parts is not None:
        losses = [
            ops.reconstruction_loss(one, parts[:, k], weight=weight) for k, one in enumerate(drawn)
        ]
        return sum(losses[1:], losses[0]) / len(losses)
    return ops.reconstruction_loss(reduce(ops.maximum, drawn), images, weight=weight)


def redraw(model, images, labels):
    """Predict the classes of images (n, C, H, W), and reconstruct each class in labels (n, J).

    Returns the predicted classes (n, J) and the reconstructions (n, P, C, H, W), ordered by class,
    as arrays on the host. If an image has fewer than P classes, its remaining reconstructions are
    black.
    """
    images, keep = tensor_for(model, images), one_at_a_time(labels)
    put = array_module(images.data).asarray
    with no_grad():
        routed = model(images)
        drawn = [model.reconstruct(routed.poses, put(one)) for one in keep]
    there = [one.any(axis=1)[:, None, None, None] for one in keep]
    drawn = [to_host(one.data) * is_there for one, is_there in zip(drawn, there, strict=True)]
    return to_host(seen(routed.activations.data, model.logits)), np.stack(drawn, axis=1)
