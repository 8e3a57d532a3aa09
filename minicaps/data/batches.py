"""Iterate over reproducible batches, so that training can be resumed within an epoch.

The random numbers for shuffling and augmentation are drawn by NumPy on the host. Images are
gathered and augmented on the device that holds them. The CPU and the GPU run the same code, so
their batches are bit-identical.
"""

import numpy as np

from minicaps import ranks
from minicaps.backend import array_module, to_host
from minicaps.data.augmentation import Augmentation, brightened, transformed
from minicaps.data.dataset import Split, generator
from minicaps.data.images import border_color

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
    fill=None,
    parts=False,
    balance=False,
    shared=False,
    **augmentation,
):
    """Iterate over one epoch in batches.

    Parameters
    ----------
    split : `Split` or `Composed` images
    batch_size : number of samples per batch; the last batch may be smaller
    seed : seed of the order and the augmentation, or None for the order of the split
        The order is drawn from (seed, epoch). If a seed is given, composed images are generated
        anew in each epoch.
    epoch : number of the epoch
    start : number of batches to skip
        The augmentation of a batch is drawn from (seed, epoch, index of the batch), so the
        remaining batches are bit-identical to those of a full epoch.
    fill : value of the pixels from outside an image, or None for the color of its border
    parts : whether to include the members of composed images, each alone
    balance : whether to draw as many images of each class as of any other; requires a seed
        The epoch keeps its length, so it repeats images of small classes and omits some of large
        ones, drawn from (seed, epoch).
    shared : whether to yield only the rows of images and parts that this rank computes
        Every rank draws the random numbers of the whole batch. The labels are those of all rows;
        `minicaps.ranks.share_of` says which rows are this rank's.
    **augmentation : random changes of the images, such as shift=2; for training only
        The arguments of `minicaps.data.augmentation.Augmentation`. They require a seed.

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
    changes = Augmentation(**augmentation)
    if not 0 <= start <= count:
        raise ValueError(
            f"start must be between 0 and the {count} batches of an epoch, got {start}"
        )
    changes.check_size(*split.shape[1:])
    if changes.active and seed is None:
        given = ", ".join(f"{name}={value}" for name, value in changes.active.items())
        raise ValueError(f"{given} requires random numbers: give a seed")
    if balance and seed is None:
        raise ValueError("balance=True requires random numbers: give a seed")
    if changes.active and parts:
        flags = ", ".join(f"--{name}" for name in changes.active)
        raise ValueError(f"the members of composed images cannot be augmented: omit {flags}")
    if seed is not None:
        split = split.at(epoch)
    order = (
        np.arange(len(split)) if seed is None else _order(split, generator(seed, 1, epoch), balance)
    )

    def generate():
        for index in range(start, count):
            which = every = order[index * batch_size : (index + 1) * batch_size]
            if share := ranks.share_of(len(every)) if shared else None:
                which = every[share.rows]
            images, labels = split.pick(which)
            if share:
                labels = split.labels[array_module(split.labels).asarray(every)]
            if changes.active:
                key = {"seed": seed, "epoch": epoch, "index": index}
                images = augmented(images, changes, fill, share=share, **key)
            yield (images, labels, split.parts(which)) if parts else (images, labels)

    return generate()


def augmented(images, changes: Augmentation, fill, *, seed, epoch, index, share=None):
    """Augment the images (n, channels, height, width) of one batch.

    fill: as in `batches`. share: the rows of the batch to which the images belong, a
    `minicaps.ranks.Share`, or None if they are the whole batch. The random numbers depend only on
    the seed, the epoch and the index of the batch. If only shifts move pixels, no pixel is
    interpolated.
    """
    n, shift = share.whole if share else len(images), changes.shift
    rows = share.rows if share else slice(None)
    offsets = generator(seed, 1, epoch, index).integers(-shift, shift + 1, (n, 2))[rows]
    if fill is None and (shift or changes.resamples):
        fill = border_color(images)[:, :, None, None]
    if changes.active.keys() <= {"shift"}:
        return shifted(images, offsets, fill)
    matrices, factors = changes.draw(n, generator(seed, 1, epoch, index, 1))
    matrices, factors = matrices[rows], factors[rows]
    if changes.resamples:
        images = transformed(images, matrices, offsets, fill)
    elif shift:
        images = shifted(images, offsets, fill)
    return brightened(images, factors) if changes.brightness else images


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


def shifted(images, offsets, fill=0):
    """Shift each image by its offset (down, right) in pixels.

    The images (n, channels, height, width) may be on any device, and the offsets are a NumPy array
    of integers. Pixels shifted in from outside the image have the value `fill`, which is a number
    or an array (n, channels, 1, 1).
    """
    xp, (n, channels, height, width) = array_module(images), images.shape
    margin = int(np.abs(offsets).max(initial=0))
    size = (n, channels, height + 2 * margin, width + 2 * margin)
    padded = xp.empty(size, dtype=images.dtype)
    padded[:] = fill
    padded[:, :, margin : margin + height, margin : margin + width] = images
    # All windows with the size of an image: (n, channels, down, right, height, width), no copy.
    sn, sc, sh, sw = padded.strides
    places = (2 * margin + 1, 2 * margin + 1)
    windows = xp.lib.stride_tricks.as_strided(
        padded, (n, channels, *places, height, width), (sn, sc, sh, sw, sh, sw)
    )
    down, right = xp.asarray(margin - np.asarray(offsets).T)
    return windows[xp.arange(n), :, down, right]
