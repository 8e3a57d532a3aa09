"""Several classes in one picture: which are seen, and how each is redrawn on its own."""

from functools import reduce

import numpy as np

from minicaps import ops
from minicaps.backend import array_module, to_host
from minicaps.graph import no_grad
from minicaps.models.inputs import tensor_for
from minicaps.ops.targets import one_hot

SEEN = 0.5  # a class is seen where its activation is above; a logit then is above 0


def seen(activations, logits=False):
    """Which classes (B, J) are seen in each picture: zeros and ones as booleans.

    A capsule's length is the probability that its class is present (Sabour et al. 2017, section
    2); so is the sigmoid of a logit.
    """
    return activations > (0 if logits else SEEN)


def highest(activations, count):
    """Which classes have the `count` highest of the activations (B, J), on the host, of equal ones
    the first: booleans (B, J). count: a number, or one for each picture (B, 1)."""
    order = np.argsort(-activations, axis=1, kind="stable")
    return np.argsort(order, axis=1) < count


def answers_of(model, activations, labels):
    """Which classes are answered, booleans (B, J): with one label each (B,) the class with the
    largest of the activations (B, J); with labels (B, J) those that are seen."""
    if labels.ndim == 2:
        return seen(activations, model.logits)
    return one_hot(activations.argmax(axis=1), activations) > 0


def right_answers(model, activations, labels):
    """Which samples (B,) are answered right: with one label each (B,), those whose class has the
    largest of the activations (B, J); with labels (B, J), those where exactly the present classes
    are seen."""
    if labels.ndim == 1:
        return activations.argmax(axis=1) == labels
    return (seen(activations, model.logits) == (labels > 0)).all(axis=1)


def one_at_a_time(labels):
    """Labels (B, J) of zeros and ones as a list of such arrays, each with at most one class of a
    sample: its first, its second, … As many as some sample needs, and at least one."""
    turn = np.cumsum(labels, axis=1, dtype=np.int64) * labels
    return [(turn == k).astype(labels.dtype) for k in range(1, max(1, turn.max(initial=0)) + 1)]


def reconstruction_loss(model, poses, keep, images, parts=None, *, weight):
    """The reconstruction loss: the decoder is run once for each class of a picture, on its capsule
    alone, and not for a class that is absent.

    poses (B, J, D); keep: which capsule each run is for, labels (B,) or `one_at_a_time`.
    parts (B, k, C, H, W), of composed pictures: what each of the k runs shall redraw, in the order
    of classes; the loss is the mean over them (Sabour et al. 2017, section 6, redraws both digits).
    None where the parts of the images (B, C, H, W) are not known: then the pictures drawn are laid
    over each other, the brightest is seen, and this is compared with the whole.
    """
    drawn = [model.reconstruct(poses, one) for one in keep]
    if parts is not None:
        losses = [
            ops.reconstruction_loss(one, parts[:, k], weight=weight) for k, one in enumerate(drawn)
        ]
        return sum(losses[1:], losses[0]) / len(losses)
    return ops.reconstruction_loss(reduce(ops.maximum, drawn), images, weight=weight)


def redraw(model, images, labels):
    """What the network makes of pictures (n, C, H, W): which classes it sees (n, J), and what its
    decoder draws for each class of labels (n, J): (n, P, C, H, W), in the order of classes, black
    beyond the last of a picture. All on the host."""
    images, keep = tensor_for(model, images), one_at_a_time(labels)
    put = array_module(images.data).asarray
    with no_grad():
        routed = model(images)
        drawn = [model.reconstruct(routed.poses, put(one)) for one in keep]
    there = [one.any(axis=1)[:, None, None, None] for one in keep]
    drawn = [to_host(one.data) * is_there for one, is_there in zip(drawn, there, strict=True)]
    return to_host(seen(routed.activations.data, model.logits)), np.stack(drawn, axis=1)
