"""Classification losses by name."""

from minicaps import ops

LOSSES = ("margin", "spread", "cross-entropy")
USUAL = {  # networks whose default is not the margin loss
    "matrix-capsnet": "spread",
    "baseline-cnn": "cross-entropy",
    "dense-cnn": "cross-entropy",
}
ABSENT = 0.5  # λ of the margin loss
FIRST_MARGIN, LAST_MARGIN, RISE = 0.2, 0.9, 1  # spread loss; RISE: epochs from first to last


def usual_loss(model):
    """Return the default loss of the network named `model`."""
    return USUAL.get(model, "margin")


def spread_margin(epoch):
    """Compute the margin of the spread loss after `epoch` epochs, which can be fractional.

    The margin grows linearly from 0.2 to 0.9 (Hinton et al. 2018, section 4). Here, it always
    reaches its maximum after the first epoch, so training can be extended by more epochs and still
    give the same result as one longer run.
    """
    return FIRST_MARGIN + (LAST_MARGIN - FIRST_MARGIN) * min(1, epoch / RISE)


def classification_loss(name, model, activations, labels, margin=LAST_MARGIN, absent=ABSENT):
    """Compute a classification loss from the activations (B, J) of `model`.

    If the model outputs logits, the cross-entropy takes their softmax as P(k); otherwise
    P(k) = a_k / Σ_j a_j, the softmax of ln a_k. (1e-6 is added to a_k so that the loss is finite
    at 0.) For multi-label data, the loss is a binary cross-entropy per class, and P(k) is the
    sigmoid of a logit. The margin loss takes the sigmoids of logits in place of lengths.

    name: one of `LOSSES`.
    labels: (B,), or (B, J) with zeros and ones for multi-label data.
    margin, absent: margin of the spread loss, and weight of the absent classes in the margin loss.
        The defaults are meant for evaluation, where losses must be comparable.
    """
    if name == "margin":
        activations = ops.sigmoid(activations) if model.logits else activations
        return ops.margin_loss(activations, labels, down_weight=absent)
    if name == "spread":
        return ops.spread_loss(activations, labels, margin=margin)
    if name != "cross-entropy":
        raise ValueError(f"unknown loss {name!r}: choose {', '.join(LOSSES)}")
    if labels.ndim == 2:
        return ops.binary_cross_entropy(activations, labels)
    logits = activations if model.logits else ops.log(activations + 1e-6)
    return ops.cross_entropy(logits, labels)


def check_several(name, model):
    """Raise ValueError if the loss is not defined for multi-label data."""
    if name == "spread" or (name == "cross-entropy" and not model.logits):
        raise ValueError(
            f"--loss {name} requires exactly one class per image, but the data is multi-label: try"
            " --loss margin"
        )
