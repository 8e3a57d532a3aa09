"""Conversion of labels to arrays of zeros and ones that mark the classes in each sample."""

import numpy as np

from minicaps.backend import array_module, is_array


def one_hot(targets, like):
    """Convert labels (B,) to one-hot vectors with the shape (B, J) and the dtype of `like`.

    Multi-label targets (B, J), which consist of zeros and ones already, keep their values. On the
    CPU, a label outside 0..J−1 or an entry other than 0 and 1 raises ValueError. On a GPU, this
    check would stall the training step, so labels are checked when the data is loaded.
    """
    xp = array_module(like)
    if not is_array(targets):
        raise TypeError(f"targets must be an array of labels, not a {type(targets).__name__}")
    if like.ndim != 2:
        raise ValueError(f"one value is needed for each sample and class, (B, J), not {like.shape}")
    if targets.shape == like.shape:
        if xp is np and not ((targets == 0) | (targets == 1)).all():
            raise ValueError("multi-label targets must be zeros and ones")
        return targets.astype(like.dtype)
    if targets.shape != like.shape[:1] or targets.dtype.kind not in "iu":
        raise ValueError(
            f"targets must be integer labels of shape {like.shape[:1]} or zeros and ones of shape"
            f" {like.shape}, not {targets.dtype} of shape {targets.shape}"
        )
    classes = like.shape[1]
    if xp is np and targets.size and not 0 <= targets.min() <= targets.max() < classes:
        span = f"{targets.min()} to {targets.max()}"
        raise ValueError(f"labels must be from 0 to {classes - 1}, but these are from {span}")
    return (targets[:, None] == xp.arange(classes)).astype(like.dtype)
