"""Compute predictions, couplings and reconstructions of a trained network for use in figures.

In array shapes, I is the number of children, J is the number of parents (plus one for the orphans
in leaky routing), and D is the number of pose components.
"""

from dataclasses import dataclass

import numpy as np

from minicaps.backend import array_module, to_host
from minicaps.errors import CheckpointError
from minicaps.graph import no_grad
from minicaps.models.inputs import tensor_for
from minicaps.models.multilabel import redraw
from minicaps.nn import Conv2d
from minicaps.routing import keep_history

CLASSES = 20  # in a figure of reconstructions; hundreds would take minutes and be illegible
SEVERAL = 10  # images in a figure of reconstructions of multi-label data


@dataclass(frozen=True, eq=False)
class View:
    """Output of a network for one image, stored in arrays on the host.

    scores: (J,), one per class: lengths of capsules, activations or probabilities.
    poses: (J, D), or None for a network without capsules.
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
    if routed.poses is None:
        return View(own, None, ())
    couplings = tuple(to_host(each.couplings.data)[0] for each in routed.history or [routed])
    return View(own, to_host(routed.poses.data)[0], couplings)


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
    chosen = split.take(np.unique(split.labels, return_index=True)[1][:CLASSES])
    views = [view(model, picture) for picture in chosen.images]
    drawn = [reconstruction(model, each.poses, each.answer) for each in views]
    labels = [class_names[k] for k in chosen.labels]
    answers = [class_names[each.answer] for each in views]
    return chosen.images, np.array(drawn), labels, answers


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


def has_decoder(model):
    return getattr(model, "decoder", None) is not None


def _drawn(model, poses, keep):
    with no_grad():
        poses = tensor_for(model, poses)
        which = array_module(poses.data).full(len(poses), keep)
        return to_host(model.reconstruct(poses, which).data)


def first_kernels(model):
    """Return the kernels (O, C, K, K) of the first convolutional layer."""
    first = next(module for _, module in model.modules() if isinstance(module, Conv2d))
    return to_host(first.weight.data)
