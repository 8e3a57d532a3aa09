"""Test a trained network with couplings that are not those of the image, without training."""

import numpy as np

from minicaps import ops
from minicaps.backend import to_host
from minicaps.data.dataset import generator
from minicaps.errors import Interrupted
from minicaps.experiments.routing import entropy
from minicaps.graph import no_grad
from minicaps.models.base import EVALUATION_BATCH
from minicaps.models.cnn import Features
from minicaps.models.inputs import tensor_for
from minicaps.models.multilabel import highest
from minicaps.nn.capsules import group_channels
from minicaps.routing import make_votes


def substituted(lab, model, split, iterations, trained, seed):
    """Test a network with its own and with other couplings, after each number of `iterations`.

    iterations: numbers of iterations, 1 and `trained` among them. trained: number of iterations in
    training. Returns the results, a list in the order of `iterations`, and which images the network
    gets right with its own couplings as trained. Other couplings are compared with the own ones
    after as many iterations, and those with the own ones as trained.
    """
    children = lab.outputs(model, lambda x: children_of(model, x), split)
    present = split.labels > 0
    same, other = partners(split.labels, seed)
    own, found = {}, []
    for r in iterations:
        couplings = own_couplings(lab, model, children, r)
        mean = np.broadcast_to(couplings.mean(axis=0), couplings.shape)
        given = {"own": couplings, "mean": mean, "same": couplings[same], "other": couplings[other]}
        answers = {
            name: highest(lengths(lab, model, children, c), present[0].sum())
            for name, c in (given.items() if r > 1 else [("own", couplings)])
        }
        own[r] = answers["own"]
        found.append(
            {
                "entropy": entropy(couplings),
                "spread": float(couplings.std(axis=0).mean() * couplings.shape[2]),
                "against": {n: compared(a, own[r], present) for n, a in answers.items()},
            }
        )
    for r, one in zip(iterations, found, strict=True):
        one["against"]["own"] = compared(own[r], own[trained], present)
        one["against"]["uniform"] = compared(own[1], own[r], present)
    return found, (own[trained] == present).all(axis=1)


def compared(answers, own, present):
    """Compare predictions (n, J) with those that the own couplings give, all booleans.

    Returns the accuracy, the share of changed predictions, and the numbers of images that are
    correct with the own couplings only (lost) and with the others only (gained).
    """
    right, was_right = ((one == present).all(axis=1) for one in (answers, own))
    return {
        "accuracy": float(right.mean()),
        "changed": float((answers != own).any(axis=1).mean()),
        "lost": int((was_right & ~right).sum()),
        "gained": int((right & ~was_right).sum()),
    }


def partners(labels, seed):
    """Choose for each image another one with the same classes, and one without a common class.

    labels: (n, J), zeros and ones; each image needs one without a common class. Returns two arrays
    of indices (n,). An image whose classes no other image has is its own partner.
    """
    random, n = generator(seed, 8), len(labels)
    same, other = np.arange(n), np.full(n, -1)
    _, kinds = np.unique(labels, axis=0, return_inverse=True)
    for kind in range(kinds.max() + 1):
        alike = random.permutation(np.flatnonzero(kinds.ravel() == kind))
        same[alike] = np.roll(alike, 1)
    while (left := np.flatnonzero(other < 0)).size:
        drawn = random.integers(0, n, len(left))
        apart = (labels[left] & labels[drawn]).sum(axis=1) == 0
        other[left[apart]] = drawn[apart]
    return same, other


def children_of(model, images):
    """Compute the children (B, I, N) of the class capsules."""
    if hasattr(model, "primary"):
        return model.primary_capsules(images)
    return group_channels(model.features(images), Features.WIDTH)


def votes_of(model, children):
    """Compute the votes (B, I, J, D) of children (B, I, N)."""
    weight = model.classes.weight
    if weight.ndim == 4:
        return make_votes(children, weight)
    return ops.einsum("bin,jnd->bijd", children, weight)


def own_couplings(lab, model, children, iterations):
    """Compute the couplings (n, I, J) of the last of `iterations` iterations of routing."""
    if iterations == 1:  # equal; a routing with options refuses it
        shape = (*children.shape[:2], model.classes.weight.shape[-3])
        return np.full(shape, 1 / shape[2], children.dtype)
    route = model.classes.routing.route

    def routed(votes, _):
        return route(votes, iterations=iterations).couplings

    return _in_batches(lab, model, routed, children)


def lengths(lab, model, children, couplings):
    """Compute the lengths (n, J) of capsules with the given couplings, v = squash(Σ_i c_ij û)."""
    kind = model.classes.routing.route.keywords["squash"]

    def combined(votes, c):
        return ops.length(ops.squash(ops.einsum("bij,bijd->bjd", c, votes), kind=kind))

    return _in_batches(lab, model, combined, children, couplings)


def _in_batches(lab, model, function, children, couplings=None):
    """Apply function(votes, couplings) to batches of all images, and return an array (n, ...)."""
    found = []
    with no_grad():
        for start in range(0, len(children), EVALUATION_BATCH):
            if lab.stop:
                raise Interrupted
            some = slice(start, start + EVALUATION_BATCH)
            votes = votes_of(model, tensor_for(model, children[some]))
            c = None if couplings is None else tensor_for(model, couplings[some])
            found.append(to_host(function(votes, c).data))
    return np.concatenate(found)
