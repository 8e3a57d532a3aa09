"""Recognize drawings with dark ink on a light background, and invert whole data sets."""

from dataclasses import replace

import numpy as np

from minicaps.data.dataset import Dataset
from minicaps.data.images import background, sampled
from minicaps.data.stored import Stored

# Values of the option, and of the argument of functions
CHOICES: dict[str, bool | str] = {"auto": "auto", "yes": True, "no": False}
# Tones between the background (0) and the strongest ink (1)
GROUND, INK, STEP = 0.25, 0.75, 0.3
FAINT = 0.1  # least difference between background and ink
GRAY = 0.02  # largest difference between the channels of a gray pixel


def inverted(dataset: Dataset, invert: bool | str) -> Dataset:
    """Swap light and dark in all images of a data set, and note it.

    invert: True, False, or "auto" to do so if the training images are dark drawings on a light
    background. The decision holds for all images and is recorded as `dataset.inverted`.
    """
    if invert not in CHOICES.values():
        raise ValueError(f'invert must be True, False or "auto", not {invert!r}')
    why = ""
    if invert == "auto":
        invert = dark_on_light(dataset.train.images)
        why = (
            ", because they show dark ink on a light background; --invert no keeps them as they are"
        )
    if not invert:
        return dataset
    parts = {part: getattr(dataset, part) for part in ("train", "validation", "test")}
    parts = {part: split and swapped(split) for part, split in parts.items()}
    notes = (*dataset.notes, f"all images are inverted{why}")
    return replace(dataset, **parts, inverted=True, notes=notes)


def swapped(split):
    """Swap light and dark in a split."""
    images = split.images
    images = images.inverted() if isinstance(images, Stored) else 1 - images
    return replace(split, images=images)


def dark_on_light(images) -> bool:
    """Return whether images (n, C, H, W) are drawings with dark ink on a light background.

    The background must be light in at least nine of ten images; see `drawn` and
    `minicaps.data.images.background`.
    """
    return background(images) == "light" and drawn(images)


def drawn(images) -> bool:
    """Return whether images (n, C, H, W) are gray drawings or text rather than photographs.

    In the median image of a drawing, most of the border has the tone of the background, most
    pixels have about that tone or that of the ink, a good part of the other pixels has that of the
    ink, and hardly any tone in between occurs away from edges. If there are many images, only about
    `LOOKED_AT` of them are inspected.
    """
    some = sampled(images)
    if any(np.ptp(image, axis=0).max() > GRAY for image in some):
        return False
    found = [shares for image in some if (shares := _shares(image[0])) is not None]
    if not found:
        return False
    border, either, ink, smooth = np.median(found, axis=0)
    return bool(border >= 2 / 3 and either >= 2 / 3 and ink >= 1 / 4 and smooth <= 1 / 6)


def _shares(picture):
    """Measure how far a gray image (H, W) is a drawing, or return None if it shows nothing.

    Returns the share of the border that has the tone of the background, the share of pixels with
    the tone of the background or the ink, and, of the pixels that are not background, the share
    with the tone of the ink and the share with a tone in between that varies little in 3×3 pixels.
    """
    if min(picture.shape) < 3:
        return None
    edges = np.concatenate([picture[0], picture[-1], picture[1:-1, 0], picture[1:-1, -1]])
    ground = np.median(edges)
    contrast = (picture.min() if ground >= 0.5 else picture.max()) - ground
    if abs(contrast) < FAINT:
        return None
    edges, tones = (edges - ground) / contrast, (picture - ground) / contrast
    rest, ink = tones > GROUND, tones > INK
    around = np.lib.stride_tricks.sliding_window_view(np.pad(tones, 1, "edge"), (3, 3))
    smooth = rest & ~ink & (np.ptp(around, axis=(2, 3)) < STEP)
    either = (abs(tones) <= GROUND) | ink
    return (
        np.mean(abs(edges) <= GROUND),
        np.mean(either),
        ink.sum() / rest.sum(),
        smooth.sum() / rest.sum(),
    )
