"""All pictures of a split fitted to a size, where they do not fill the machine."""

import os

import numpy as np

from minicaps.data.dataset import Split
from minicaps.data.images import Target
from minicaps.errors import DataError


def fitted(split: Split, target: Target) -> Split:
    """A split whose pictures are as `target` wants them: itself if they are. Poses are in pixels of
    the old pictures, and go."""
    old = split.images.shape[1:]
    new = (target.channels or old[0], *(target.size or old[1:]))
    if new == old and not target.invert:
        return split
    check_memory(len(split), new[0], new[1:])
    images = np.empty((len(split), *new), dtype=np.float32)
    for k, image in enumerate(split.images):
        images[k] = target.fit(image)
    return Split(images, split.labels, names=split.names)


def check_memory(count, channels, size):
    """Refuse pictures that would fill the machine, before it comes to a standstill."""
    if not hasattr(os, "sysconf"):
        return
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    needed = count * channels * size[0] * size[1] * 4 * 2  # floats, and once more to sort them
    if needed > there:
        raise DataError(
            f"{count:,} pictures of {size[0]}×{size[1]} need up to {needed / 1e9:.1f} GB"
            f" of memory, this machine has {there / 1e9:.1f}: give a smaller --size"
        )
