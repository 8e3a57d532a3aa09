"""Batches, shuffled and shifted reproducibly, so that a run can be resumed in mid-epoch.

Random numbers are NumPy's, on the host. Pictures are gathered and shifted where their arrays live,
on the CPU or on a GPU, by the same code: the batches are bit-equal.
"""

import numpy as np

from minicaps.backend import array_module
from minicaps.data.dataset import Split, generator

SHARE = 0.5  # of the memory that is free on a GPU: more pictures would take room from training


def resident(split: Split, device) -> Split:
    """The pictures and labels of `split` on `device`, a `minicaps.backend.Device`, if they fit.

    A batch of them then costs a GPU the copy of its indices. Pictures that take more than `SHARE`
    of its free memory stay where they are; so does everything for the CPU.
    """
    if device.kind == "cpu" or split.nbytes > SHARE * device.free_memory():
        return split
    return split.on(device)


def batches(split: Split, batch_size: int, *, seed=None, epoch=0, start=0, shift=0, parts=False):
    """Iterate over one epoch in batches (images (b, channels, height, width), labels (b,)).

    b is `batch_size`, or less in the last batch. With `seed=None` the samples come in their own
    order, with a seed in an order drawn from (seed, epoch). `shift=s` moves each image by whole
    pixels, drawn from -s..s for each axis, and fills with zeros; it is for training images only,
    and needs a seed. The shifts of a batch are drawn from (seed, epoch, index of the batch), so
    `start=k` skips k batches and gives the others bit-equal. Composed pictures are new ones in
    each epoch of a seed; with `parts=True` each batch has their members, too, each alone (b, k,
    channels, height, width). Raises ValueError at the call, not at the first batch, for arguments
    that make no sense.
    """
    count = number_of_batches(len(split), batch_size)
    smallest_side = min(split.shape[1:])
    if not 0 <= start <= count:
        raise ValueError(
            f"start must be between 0 and the {count} batches of an epoch, got {start}"
        )
    if not 0 <= shift < smallest_side:
        raise ValueError(
            f"shift must be 0 to {smallest_side - 1} pixels for these images, got {shift}"
        )
    if shift and seed is None:
        raise ValueError(f"shift={shift} draws random numbers: give a seed")
    if shift and parts:
        raise ValueError("the members of composed pictures cannot be shifted: leave --shift out")
    if seed is not None:
        split = split.at(epoch)
    order = (
        np.arange(len(split)) if seed is None else generator(seed, 1, epoch).permutation(len(split))
    )

    def generate():
        for index in range(start, count):
            which = order[index * batch_size : (index + 1) * batch_size]
            images, labels = split.pick(which)
            if shift:
                random = generator(seed, 1, epoch, index)
                images = shifted(images, random.integers(-shift, shift + 1, (len(which), 2)))
            yield (images, labels, split.parts(which)) if parts else (images, labels)

    return generate()


def number_of_batches(samples: int, batch_size: int) -> int:
    """How many batches `batches` makes of so many samples; the last may be smaller."""
    if batch_size < 1:
        raise ValueError(f"batch size must be at least 1, got {batch_size}")
    return -(-samples // batch_size)


def shifted(images, offsets):
    """Move image i of images (n, channels, height, width) by offsets[i] = (down, right), in whole
    pixels; zeros move in. images: on any device; offsets: NumPy's."""
    xp, (n, channels, height, width) = array_module(images), images.shape
    margin = int(np.abs(offsets).max(initial=0))
    padded = xp.pad(images, ((0, 0), (0, 0), (margin, margin), (margin, margin)))
    # All windows of the size of an image: (n, channels, down, right, height, width), no copy.
    sn, sc, sh, sw = padded.strides
    places = (2 * margin + 1, 2 * margin + 1)
    windows = xp.lib.stride_tricks.as_strided(
        padded, (n, channels, *places, height, width), (sn, sc, sh, sw, sh, sw)
    )
    down, right = xp.asarray(margin - np.asarray(offsets).T)
    return windows[xp.arange(n), :, down, right]
