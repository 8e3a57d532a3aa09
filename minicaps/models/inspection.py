"""What a trained network says of one picture, and what lies in it: for figures.

Letters: I children, J parents (one more in leaky routing: the orphans), D numbers in a pose.
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

CLASSES = 20  # that are redrawn: a figure of hundreds takes many minutes, and nobody can read it
SEVERAL = 10  # pictures that are redrawn, where each has several classes


@dataclass(frozen=True, eq=False)
class View:
    """What a network answers to a picture; arrays on the host.

    scores: (J,), one for each class: lengths of capsules, activations or probabilities.
    poses: (J, D), or None for a network without capsules.
    couplings: of every iteration of the routing to the classes, (I, J); none without capsules.
    """

    scores: np.ndarray
    poses: np.ndarray | None
    couplings: tuple[np.ndarray, ...]

    @property
    def ranking(self):
        """The classes, highest score first."""
        return np.argsort(-self.scores, kind="stable")

    @property
    def answer(self):
        return int(self.ranking[0])


def view(model, picture) -> View:
    """Show a model in evaluation a picture (C, H, W), and write down what it does.

    Raises CheckpointError if a score is infinite or NaN.
    """
    with no_grad():
        with keep_history():  # learned couplings have no iterations
            routed = model(tensor_for(model, picture[None]))
        scores = routed.activations
        if model.logits:
            scores = model.probabilities(scores)
    if not np.isfinite(to_host(scores.data)).all():
        raise CheckpointError(
            "a score of the network is infinite or NaN: its parameters are too large, as after a"
            " training that diverged; take an earlier checkpoint"
        )
    if routed.poses is None:
        return View(to_host(scores.data)[0], None, ())
    couplings = tuple(to_host(each.couplings.data)[0] for each in routed.history or [routed])
    return View(to_host(scores.data)[0], to_host(routed.poses.data)[0], couplings)


def share_map(couplings, grid, parent):
    """Mean share that the children at each position send to a parent: (rows, columns)."""
    return couplings[:, parent].reshape(grid[:3]).mean(axis=2)


def entropy(couplings):
    """Mean over the children of −Σ_j c_ij ln c_ij, in nats: ln J when all shares are equal."""
    c = couplings.astype(np.float64)
    return float(-np.where(c > 0, c * np.log(np.where(c > 0, c, 1)), 0).sum(axis=1).mean())


def reconstruction(model, poses, keep):
    """What the decoder draws from one capsule of poses (J, D): (C, H, W); None without decoder."""
    drawn = _drawn(model, poses[None], keep) if has_decoder(model) else None
    return drawn if drawn is None else drawn[0]


def redrawn(model, split, class_names):
    """A picture of each class of `split`, of the first `CLASSES` that it has, and what the decoder
    makes of the answer's capsule; of pictures with several classes the first ones, and what it
    makes of each class: what `plotting.reconstructions` takes, or `plotting.members`, but for the
    file. The pictures are on the host."""
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
    """What the decoder draws when one number of the capsule `keep` of poses (J, D) is moved:
    (D, offsets, C, H, W)."""
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
    """The kernels of the first convolution, (O, C, K, K)."""
    first = next(module for _, module in model.modules() if isinstance(module, Conv2d))
    return to_host(first.weight.data)
