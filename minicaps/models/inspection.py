"""Compute predictions, couplings and reconstructions of a trained network for use in figures.

In array shapes, I is the number of children, J is the number of parents (plus one for the orphans
in leaky routing), and D is the number of pose components.
"""

from dataclasses import dataclass

import numpy as np

from minicaps.backend import array_module, to_host
from minicaps.data.dataset import of_class
from minicaps.errors import CheckpointError
from minicaps.graph import no_grad
from minicaps.models.inputs import tensor_for
from minicaps.models.multilabel import redraw
from minicaps.nn import Conv2d
from minicaps.routing import keep_history

CLASSES = 20  # in a figure of reconstructions; hundreds would take minutes and be illegible
BLANK = "all reconstructions are blank: training was too short, or the images are too faint"
FAINT = 0.1  # contrast of an image, with pixels between 0 and 1, that is barely visible
VISIBLE = 0.15  # change of a pixel that can be seen in a small image
ALIKE = 0.95  # share of the differences that one image explains
IMAGES = 50  # whose poses are compared
SEVERAL = 10  # images in a figure of reconstructions of multi-label data


@dataclass(frozen=True, eq=False)
class View:
    """Output of a network for one image, stored in arrays on the host.

    scores: (J,), one per class: lengths of capsules, activations or probabilities.
    poses: (J, D), or None for a network with neither capsules nor a decoder.
    couplings: one array (I, J) per iteration of the routing to the classes; empty for a network
        without capsules.
    """

    scores: np.ndarray
    poses: np.ndarray | None
    couplings: tuple[np.ndarray, ...]

    @property
    def ranking(self):
        """Class indices, sorted by decreasing score."""
        return np.argsort(-self.scores, kind="stable")

    @property
    def answer(self):
        return int(self.ranking[0])


def view(model, picture) -> View:
    """Run a model on an image (C, H, W) in evaluation mode; record its output and couplings.

    Raises CheckpointError if a score is non-finite.
    """
    with no_grad():
        with keep_history():  # learned couplings have no iterations
            routed = model(tensor_for(model, picture[None]))
        (own,) = _checked_scores(model, routed.activations)
    poses = None if routed.poses is None else to_host(routed.poses.data)[0]
    if routed.couplings is None:
        return View(own, poses, ())
    couplings = tuple(to_host(each.couplings.data)[0] for each in routed.history or [routed])
    return View(own, poses, couplings)


def scores(model, pictures) -> np.ndarray:
    """Return the scores (n, J) of images (n, C, H, W), as `view` computes them for one image."""
    with no_grad():
        return _checked_scores(model, model(tensor_for(model, pictures)).activations)


def _checked_scores(model, activations):
    """Convert activations (B, J) to scores on the host; raise CheckpointError if not finite."""
    found = to_host((model.probabilities(activations) if model.logits else activations).data)
    if not np.isfinite(found).all():
        raise CheckpointError(
            "a score of the network is infinite or NaN: its parameters are too large, which usually"
            " means that training diverged; use an earlier checkpoint"
        )
    return found


def share_map(couplings, grid, parent):
    """Average the couplings to one parent over the children at each position.

    The result has shape (rows, columns).
    """
    return couplings[:, parent].reshape(grid[:3]).mean(axis=2)


def entropy(couplings):
    """Compute the mean entropy −Σ_j c_ij ln c_ij of the children's couplings, in nats.

    If all couplings are equal, the entropy is ln J.
    """
    c = couplings.astype(np.float64)
    return float(-np.where(c > 0, c * np.log(np.where(c > 0, c, 1)), 0).sum(axis=1).mean())


def reconstruction(model, poses, keep):
    """Decode the capsule `keep` of poses (J, D) to an image (C, H, W).

    Returns None if the model has no decoder.
    """
    drawn = _drawn(model, poses[None], keep) if has_decoder(model) else None
    return drawn if drawn is None else drawn[0]


def contrast(pictures):
    """Return the largest difference between two pixels of a channel for images (n, C, H, W)."""
    return np.ptp(pictures, axis=(2, 3)).max(axis=1)


def blank(drawn):
    """Return whether all reconstructions (…, C, H, W) are uniform as far as can be seen."""
    return bool((contrast(drawn.reshape(-1, *drawn.shape[-3:])) < FAINT).all())


def first_clear(split, which):
    """Return the first of the indices `which` whose image is not blank.

    If all images are blank, the result is the first index.
    """
    shown = (k for k in which if contrast(split.take(np.array([k])).images)[0] >= FAINT)
    return int(next(shown, which[0]))


def redrawn(model, split, class_names):
    """Reconstruct one image from each of the first `CLASSES` classes of `split`.

    The decoder reconstructs each image from the capsule of the predicted class. For multi-label
    data, the first `SEVERAL` images are used, with one reconstruction per class present. Returns
    the arguments of `plotting.reconstructions` (or `plotting.members` for multi-label data), except
    for the file. The images are on the host.
    """
    if split.multi:
        some = split.take(np.arange(min(SEVERAL, len(split))))
        answers, drawn = redraw(model, some.images, some.labels)
        return some.images, drawn, some.labels, answers, class_names
    classes = np.unique(split.labels)[:CLASSES]
    chosen = [first_clear(split, np.flatnonzero(of_class(split.labels, k))) for k in classes]
    chosen = split.take(np.array(chosen))
    views = [view(model, picture) for picture in chosen.images]
    drawn = [reconstruction(model, each.poses, each.answer) for each in views]
    labels = [class_names[k] for k in chosen.labels]
    answers = [class_names[each.answer] for each in views]
    return chosen.images, np.array(drawn), labels, answers, len(class_names)


def sweep(model, poses, keep, offsets):
    """Decode the capsule `keep` of poses (J, D), shifting one component at a time by each offset.

    Returns an array of images with shape (D, offsets, C, H, W).
    """
    size = poses.shape[1]
    moved = np.broadcast_to(poses, (size, len(offsets), *poses.shape)).copy()
    for d in range(size):
        moved[d, :, keep, d] += offsets
    drawn = _drawn(model, moved.reshape(-1, *poses.shape), keep)
    return drawn.reshape(size, len(offsets), *drawn.shape[1:])


def visible_sweep(model, poses, keep, offsets):
    """Sweep as far as changes can be seen, and sort the components by the size of their effect.

    The offsets are multiplied by 2 or 4 if no image changes clearly otherwise. Returns the images
    of the components with a visible effect (K, offsets, C, H, W), the components (K,), strongest
    first, and the offsets. K is 0 if no component has a visible effect.
    """
    for scale in (1, 2, 4):
        drawn = sweep(model, poses, keep, scale * offsets)
        effect = np.ptp(drawn, axis=1).max(axis=(1, 2, 3))
        if effect.max() >= 2 * VISIBLE:
            break
    order = np.argsort(-effect, kind="stable")[: (effect >= VISIBLE).sum()]
    return drawn[order], order, scale * offsets


def alike(drawn):
    """Return whether the components of a sweep (K, offsets, C, H, W) have the same effect.

    This is so if one image explains nearly all differences between the two ends of the rows.
    """
    changes = (drawn[:, -1] - drawn[:, 0]).reshape(len(drawn), -1)
    explained = np.linalg.svd(changes, compute_uv=False) ** 2
    return len(drawn) > 1 and bool(explained[0] > ALIKE * explained.sum())


def pose_spread(model, split, keep):
    """Return the standard deviations (D,) of the pose of class `keep` over images of the class.

    At most `IMAGES` images of `split` are used.
    """
    which = np.flatnonzero(of_class(split.labels, keep))[:IMAGES]
    poses = [view(model, split.take(np.array([k])).images[0]).poses[keep] for k in which]
    return np.std(poses, axis=0)


def has_decoder(model):
    return getattr(model, "decoder", None) is not None


def _drawn(model, poses, keep):
    with no_grad():
        poses = tensor_for(model, poses)
        which = array_module(poses.data).full(len(poses), keep)
        return to_host(model.reconstruct(poses, which).data)


def first_kernels(model):
    """Return the kernels (O, C, K, K) of the first convolutional layer, the most used first.

    The use of a kernel is its norm multiplied by that of the weights with which the second
    convolutional layer reads its output, so that it does not depend on the scale of either.
    """
    layers = [module for _, module in model.modules() if isinstance(module, Conv2d)]
    first, *rest = (to_host(layer.weight.data) for layer in layers[:2])
    use = _norms(first)
    for second in rest:
        use = use * _norms(np.moveaxis(second, 1, 0))
    return first[np.argsort(-use, kind="stable")]


def _norms(weights):
    return np.linalg.norm(weights.reshape(len(weights), -1), axis=1)
