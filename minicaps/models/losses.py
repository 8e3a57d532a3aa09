"""What a classifier is trained to make small, by name, from its activations and the labels."""

from minicaps import ops

LOSSES = ("margin", "spread", "cross-entropy")
USUAL = {  # of the networks that are not trained with the margin loss
    "matrix-capsnet": "spread",
    "baseline-cnn": "cross-entropy",
    "dense-cnn": "cross-entropy",
}
FIRST_MARGIN, LAST_MARGIN, RISE = 0.2, 0.9, 1  # of the spread loss; epochs from first to last


def usual_loss(model):
    """The loss that a network is trained with unless another is chosen; model: its name."""
    return USUAL.get(model, "margin")


def spread_margin(epoch):
    """The margin of the spread loss after `epoch` epochs, a fraction within one.

    It grows linearly from 0.2 to 0.9 (Hinton et al. 2018, section 4); here in the first epoch of
    any run, so that one that is resumed with more epochs is as if it had had them from the start.
    """
    return FIRST_MARGIN + (LAST_MARGIN - FIRST_MARGIN) * min(1, epoch / RISE)


def classification_loss(name, model, activations, labels, margin=LAST_MARGIN):
    """The loss `name`, one of LOSSES, of the activations (B, J) that `model` gave; labels (B,), or
    (B, J) of zeros and ones where several classes may be present.

    Cross-entropy: where the scores of the model are logits, P(k) is their softmax; else
    P(k) = a_k / Σ_j a_j, the softmax of ln a_k. (1e-6 is added to a_k, to be finite at 0.) With
    several classes it is binary, of each class, and P(k) the sigmoid of a logit.
    margin: of the spread loss; the default is for measuring, so that epochs compare.
    """
    if name == "margin":
        return ops.margin_loss(activations, labels)
    if name == "spread":
        return ops.spread_loss(activations, labels, margin=margin)
    if name != "cross-entropy":
        raise ValueError(f"unknown loss {name!r}: choose {', '.join(LOSSES)}")
    if labels.ndim == 2:
        return ops.binary_cross_entropy(activations, labels)
    logits = activations if model.logits else ops.log(activations + 1e-6)
    return ops.cross_entropy(logits, labels)


def check_several(name, model):
    """Refuse, by ValueError, a loss that has no meaning where several classes may be present."""
    if name == "spread" or (name == "cross-entropy" and not model.logits):
        raise ValueError(
            f"--loss {name} is for one class in each picture, and here there may be several: try"
            " --loss margin"
        )
