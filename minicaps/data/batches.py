"""Iterate over reproducible batches, so that training can be resumed within an epoch.

The random numbers for shuffling and shifting are drawn by NumPy on the host. Images are gathered
and shifted on the device that holds them. The CPU and the GPU run the same code, so their batches
are bit-identical.
"""

import numpy as np

from minicaps.backend import array_module, to_host
from minicaps.data.dataset import Split, generator

SHARE = 0.5  # largest fraction of a GPU's free memory for images; training needs the rest


def resident(split: Split, device) -> Split:
    """Copy images and labels of `split` to `device`, a `minicaps.backend.Device`, if they fit.

    Once the images are on a GPU, only the indices of each batch have to be copied. If the split
    needs more than the fraction `SHARE` of the free memory, or if the device is the CPU, the split
    is returned unchanged.
    """
    if device.kind == "cpu" or split.nbytes > SHARE * device.free_memory():
        return split
    return split.on(device)


def batches(
    split: Split,
    batch_size: int,
    *,
    seed=None,
    epoch=0,
    start=0,
    shift=0,
    parts=False,
    balance=False,
):
    """Iterate over one epoch in batches.

    Parameters
    ----------
    split : `Split` or `Composed` images
    batch_size : number of samples per batch; the last batch may be smaller
    seed : seed of the order and the shifts, or None for the order of the split
        The order is drawn from (seed, epoch). If a seed is given, composed images are generated
        anew in each epoch.
    epoch : number of the epoch
    start : number of batches to skip
        The shifts of a batch are drawn from (seed, epoch, index of the batch), so the remaining
        batches are bit-identical to those of a full epoch.
    shift : largest random shift of each image along each axis, in pixels; for training only
        The shift is an integer drawn from -shift..shift and requires a seed. Zeros are shifted in.
    parts : whether to include the members of composed images, each alone
    balance : whether to draw as many images of each class as of any other; requires a seed
        The epoch keeps its length, so it repeats images of small classes and omits some of large
        ones, drawn from (seed, epoch).

    Returns
    -------
    An iterator over batches (images, labels) or (images, labels, parts), with images (b, channels,
    height, width), labels (b,) or (b, classes), and parts (b, k, channels, height, width).

    Raises
    ------
    ValueError
        If an argument is out of range or arguments contradict each other. The error is raised when
        the function is called, before any batch is requested.
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
        raise ValueError(f"shift={shift} requires random numbers: give a seed")
    if shift and parts:
        raise ValueError("the members of composed images cannot be shifted: omit --shift")
    if seed is not None:
        split = split.at(epoch)
    order = (
        np.arange(len(split)) if seed is None else _order(split, generator(seed, 1, epoch), balance)
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


def _order(split, random, balance):
    """Draw the order of an epoch, which is a permutation unless the classes are balanced."""
    if not balance:
        return random.permutation(len(split))
    labels = to_host(split.labels)
    classes = random.permutation(np.unique(labels))  # the first ones get the images left over
    drawn = []
    for k, label in enumerate(classes):
        which, count = np.flatnonzero(labels == label), len(range(k, len(split), len(classes)))
        rounds = [random.permutation(which) for _ in range(-(-count // len(which)))]
        drawn.append(np.concatenate(rounds)[:count])
    return random.permutation(np.concatenate(drawn))


def number_of_batches(samples: int, batch_size: int) -> int:
    """Return the number of batches in an epoch, including a final batch that may be smaller."""
    if batch_size < 1:
        raise ValueError(f"batch size must be at least 1, got {batch_size}")
    return -(-samples // batch_size)


def shifted(images, offsets):
    """Shift each image by its offset (down, right) in pixels.

    The images (n, channels, height, width) may be on any device, and the offsets are a NumPy array
    of integers. Pixels shifted in from outside the image are zero.
    """
    xp, (n, channels, height, width) = array_module(images), images.shape
    margin = int(np.abs(offsets).max(initial=0))
    padded = xp.pad(images, ((0, 0), (0, 0), (margin, margin), (margin, margin)))
    # All windows with the size of an image: (n, channels, down, right, height, width), no copy.
    sn, sc, sh, sw = padded.strides
    places = (2 * margin + 1, 2 * margin + 1)
    windows = xp.lib.stride_tricks.as_strided(
        padded, (n, channels, *places, height, width), (sn, sc, sh, sw, sh, sw)
    )
    down, right = xp.asarray(margin - np.asarray(offsets).T)
    return windows[xp.arange(n), :, down, right]
