"""Images that are changed by at most ε per pixel so that a network errs, for `adversarial`."""

from contextlib import contextmanager

import numpy as np
from tqdm import tqdm

from minicaps import ops
from minicaps.backend import array_module, to_host
from minicaps.data import Split
from minicaps.models.base import EVALUATION_BATCH
from minicaps.models.losses import classification_loss
from minicaps.runs.inference import batches_for
from minicaps.tensor import Tensor

STRENGTHS = (0.05, 0.1, 0.15, 0.2, 0.25)
STEPS = 10  # of `iterated`
RESTARTS, QUICK_RESTARTS = (5, 100), (2, 10)  # starts, and steps from each
EDGE = float(np.finfo(np.float32).eps)  # lengths are clipped to [EDGE, 1 − EDGE]


def pictures(lab, model, split, attack):
    """Attack the images of `split` at each strength, and return one `Split` per strength."""
    if attack == "restarts":
        return restarts(lab, model, split, *(QUICK_RESTARTS if lab.quick else RESTARTS))
    if attack == "iterated":
        return [iterated(lab, model, split, strength) for strength in STRENGTHS]
    if attack == "noise":
        signs = np.random.default_rng(0).choice([-1, 1], split.images.shape)
    else:
        signs = np.sign(gradients(lab, model, split, attack)[0])
    return [moved(split, strength * signs) for strength in STRENGTHS]


def iterated(lab, model, split, strength):
    for _ in range(STEPS):
        slope, _ = gradients(lab, model, split, "difference")
        split = moved(split, strength / STEPS * np.sign(slope))
    return split


def moved(split, change):
    """Add `change` to the images, and clip the result to [0, 1]."""
    return Split(np.clip(split.images + change, 0, 1, dtype=np.float32), split.labels)


def restarts(lab, model, split, starts, steps):
    """Attack by projected gradient ascent from several starts, and return a `Split` per strength.

    The first start is the image itself, the others are random points of the ball around it. An
    image that is misclassified at one strength lies in every larger ball, too, so only the others
    are attacked at larger strengths.
    """
    rng, found = np.random.default_rng(0), []
    made, left = split.images.copy(), np.arange(len(split))  # left: those still correct
    for strength in STRENGTHS:
        shown = {"desc": f"restarts, ε = {strength:g}", "unit": " steps", "total": starts * steps}
        with tqdm(**shown, delay=1, leave=False, disable=None) as bar:
            for start in range(starts):
                noise = rng.uniform(-strength, strength, made.shape) if start else 0
                made[left] = in_ball(split.images, split.images + noise, strength)[left]
                left = climb(lab, model, split, made, left, strength, steps, bar.update)
        found.append(Split(made.copy(), split.labels))
    return found


def climb(lab, model, split, made, left, strength, steps, update):
    """Move the images `made[left]` in place until they are misclassified, at most `steps` times.

    left: indices of images. Returns the indices of those that are still classified correctly.
    update: called after each step.
    """
    for step in range(steps + 1):
        if not len(left):
            break
        slopes, right = gradients(lab, model, Split(made[left], split.labels[left]), "restarts")
        left, slopes = left[right], slopes[right]
        if step < steps:
            # x ← the projection of x + 2.5 ε / steps · sign(∂difference/∂x) to the ball
            higher = made[left] + 2.5 * strength / steps * np.sign(slopes)
            made[left] = in_ball(split.images[left], higher, strength)
            update()
    return left


def in_ball(images, points, strength):
    """Project `points` to the images that differ from `images` by at most `strength`."""
    near = np.clip(points, images - strength, images + strength)
    return np.clip(near, 0, 1, dtype=np.float32)


def gradients(lab, model, split, attack):
    """Compute ∂objective/∂image for every image, (n, C, H, W), and which images are correct, (n,).

    attack: which objective, "loss", "difference" or "restarts".
    """
    slopes, right = [], []
    for images, labels in batches_for(model, split, EVALUATION_BATCH, stop=lab.stop):
        x = Tensor(images.data, requires_grad=True)
        with constant(model):
            scores = model(x).activations
            objective(model, scores, labels, attack).backward()
        slopes.append(to_host(x.grad))
        right.append(to_host(scores.data.argmax(axis=1) == labels))
    return np.concatenate(slopes), np.concatenate(right)


@contextmanager
def constant(model):
    """Treat the parameters as constants in this block, so that their gradients cost nothing."""
    nodes = [(parameter, parameter.node) for parameter in model.parameters()]
    for parameter, _ in nodes:
        parameter.node = None
    try:
        yield
    finally:
        for parameter, node in nodes:
            parameter.node = node


def objective(model, scores, labels, attack):
    """Compute what an attack increases: the loss, or the difference of scores."""
    if attack == "loss":
        return classification_loss(model.loss, model, scores, labels)
    if attack == "restarts" and not model.logits:
        scores = before_squash(scores)
    return difference(scores, labels)


def before_squash(lengths):
    """Compute the lengths n before the paper's squash from |v| = n² / (1 + n²).

    Lengths are clipped so that n and its slope are finite at 0 and 1.
    """
    share = ops.clip(lengths, low=EDGE, high=1 - EDGE)
    # n = √(|v| / (1 − |v|))
    return ops.sqrt(share / (1 - share))


def difference(scores, labels):
    """Compute the highest score of a wrong class minus the score of the correct class.

    The difference is summed over the images.

    scores: (B, J). labels: (B,).
    """
    each, wrong = array_module(labels).arange(len(labels)), scores.data.copy()
    wrong[each, labels] = -np.inf
    return (scores[each, wrong.argmax(axis=1)] - scores[each, labels]).sum()
