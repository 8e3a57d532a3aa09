"""Losses: one number for a batch, the mean over its samples."""

import numpy as np

from minicaps.backend import array_module, is_array
from minicaps.ops.activation import log_softmax, softplus
from minicaps.ops.math import multiply
from minicaps.ops.reduce import mean, sum
from minicaps.tensor import Tensor, op


def one_hot(targets, like):
    """Turn labels (B,) into an array of zeros and ones of the shape (B, J) and dtype of `like`.

    An array (B, J) of zeros and ones (several classes present) passes through. A label outside
    0..J−1 is an error on the CPU; on a GPU asking would make the step wait, so labels are
    checked when data is loaded.
    """
    xp = array_module(like)
    if not is_array(targets):
        raise TypeError(f"targets must be an array of labels, not a {type(targets).__name__}")
    if targets.shape == like.shape:
        return targets.astype(like.dtype)
    if targets.shape != like.shape[:1] or targets.dtype.kind not in "iu":
        raise ValueError(
            f"targets must be integer labels of shape {like.shape[:1]} or zeros and ones of shape"
            f" {like.shape}, not {targets.dtype} of shape {targets.shape}"
        )
    classes = like.shape[1]
    if xp is np and targets.size and not 0 <= targets.min() <= targets.max() < classes:
        raise ValueError(
            f"labels must be 0 to {classes - 1}; these go from {targets.min()} to {targets.max()}"
        )
    return (targets[:, None] == xp.arange(classes)).astype(like.dtype)


@op
def margin_loss(lengths, targets, *, m_plus=0.9, m_minus=0.1, down_weight=0.5):
    """Margin loss of capsule lengths (B, J), Sabour et al. 2017, eq. 4.

    L = Σ_k T_k max(0, m⁺ − |v_k|)² + λ (1 − T_k) max(0, |v_k| − m⁻)², averaged over the batch.
    targets: labels (B,) or, where several classes may be present, zeros and ones (B, J).
    """
    xp = array_module(lengths)
    present = one_hot(targets, lengths)
    short = present * xp.maximum(m_plus - lengths, 0)
    long = down_weight * (1 - present) * xp.maximum(lengths - m_minus, 0)
    batch = lengths.shape[0]
    value = (short * (m_plus - lengths) + long * (lengths - m_minus)).sum() / batch
    return value, (lambda g: g * (2 / batch) * (long - short), None)


def cross_entropy(logits, targets):
    """Mean of −ln softmax(logits)[target]; logits (B, J), targets as in `margin_loss`."""
    present = one_hot(_raw(targets), _raw(logits))
    return -sum(log_softmax(logits, axis=1) * present) / logits.shape[0]


def binary_cross_entropy(logits, targets):
    """Mean over all entries of −t ln σ(x) − (1−t) ln(1−σ(x)) = softplus(x) − t x.

    logits (B, J), targets as in `margin_loss`.
    """
    present = one_hot(_raw(targets), _raw(logits))
    return mean(softplus(logits) - multiply(logits, present))


def mse(prediction, target):
    """Mean squared error over all entries."""
    difference = prediction - target
    return mean(difference * difference)


def reconstruction_loss(reconstruction, images, *, weight=0.0005):
    """weight × the *sum* of squared pixel errors, averaged over the batch (Sabour et al., 4.1)."""
    difference = reconstruction - images
    return weight * sum(difference * difference) / reconstruction.shape[0]


def _raw(x):
    return x.data if isinstance(x, Tensor) else x
