"""Loss functions, averaged over the samples of a batch; the loss of an empty batch is 0."""

import math

from minicaps.backend import Array, array_module
from minicaps.ops.activation import log_sigmoid, log_softmax
from minicaps.ops.math import as_float, negative, subtract, where
from minicaps.ops.reduce import mean, sum, wide
from minicaps.ops.targets import one_hot
from minicaps.tensor import Tensor, op

__all__ = [
    "binary_cross_entropy", "cross_entropy", "margin_loss", "mse", "reconstruction_loss",
    "spread_loss",
]  # fmt: skip


@op
def margin_loss(
    lengths, targets, *, m_plus: float = 0.9, m_minus: float = 0.1, down_weight: float = 0.5
):
    """Margin loss of capsule lengths (B, J) (Sabour et al. 2017, eq. 4).

    L = Σ_k T_k max(0, m⁺ − |v_k|)² + λ (1 − T_k) max(0, |v_k| − m⁻)², averaged over the batch.
    targets: labels (B,) or, for multi-label data, zeros and ones (B, J).
    """
    xp = array_module(lengths)
    present = one_hot(targets, lengths)
    short = present * xp.maximum(m_plus - lengths, 0)
    long = down_weight * (1 - present) * xp.maximum(lengths - m_minus, 0)
    batch = lengths.shape[0] or 1
    value = short * (m_plus - lengths) + long * (lengths - m_minus)
    value = (value.sum(dtype=wide(value.dtype)) / batch).astype(value.dtype)
    return value, (lambda g: g * (2 / batch) * (long - short), None)


@op
def spread_loss(activations, targets, *, margin: float):
    """Spread loss of activations (B, J) with one label per sample (Hinton et al. 2018, eq. 3).

    L = Σ_{k≠t} max(0, m − (a_t − a_k))², averaged over the batch: the activation of the correct
    class t should exceed all others by the margin m > 0. targets: labels (B,).
    """
    xp = array_module(activations)
    if not margin > 0:
        raise ValueError(f"the margin must be positive, not {margin}")
    present = one_hot(targets, activations)
    if targets.ndim > 1:
        raise ValueError("the spread loss needs one label for each sample, (B,): try margin_loss")
    activations = as_float(activations)
    right = (present * activations).sum(axis=1, keepdims=True)
    short = (1 - present) * xp.maximum(margin - (right - activations), 0)
    batch = activations.shape[0] or 1
    value = ((short * short).sum(dtype=wide(short.dtype)) / batch).astype(short.dtype)

    def pullback(g):
        return g * (2 / batch) * (short - present * short.sum(axis=1, keepdims=True))

    return value, (pullback, None)


def cross_entropy(logits: Tensor, targets: Array) -> Tensor:
    """Cross-entropy −ln softmax(logits)[target], averaged over the batch.

    logits: (B, J). targets: as in `margin_loss`.
    """
    present = one_hot(_raw(targets), _raw(logits))
    # Not a product, because the logit of an absent class may be −∞
    return -_mean(sum(where(present > 0, log_softmax(logits, axis=1), 0), axis=1))


def binary_cross_entropy(logits: Tensor, targets: Array) -> Tensor:
    """Binary cross-entropy −t ln σ(x) − (1−t) ln σ(−x), averaged over all entries.

    logits: (B, J). targets: as in `margin_loss`.
    """
    present = one_hot(_raw(targets), _raw(logits))
    return -_mean(log_sigmoid(where(present > 0, logits, negative(logits))))


def mse(prediction: Tensor, target: Tensor | Array) -> Tensor:
    """Mean squared error over all entries of two arrays of the same shape."""
    difference = _difference(prediction, target)
    return _mean(difference * difference)


def reconstruction_loss(
    reconstruction: Tensor, images: Tensor | Array, *, weight: float = 0.0005
) -> Tensor:
    """Weighted *sum* of squared pixel errors, averaged over the batch (Sabour et al. 2017, 4.1)."""
    difference = _difference(reconstruction, images)
    return weight * sum(difference * difference) / (reconstruction.shape[0] or 1)


def _mean(x):
    """Return the mean over all entries, or 0 if there are none."""
    return mean(x) if math.prod(x.shape) else sum(x)


def _difference(a, b):
    if a.shape != b.shape:
        raise ValueError(f"the arrays must have the same shape, not {a.shape} and {b.shape}")
    return subtract(a, b)


def _raw(x):
    return x.data if isinstance(x, Tensor) else x
