"""Choose the size of custom images if it is not given, so that every network can use them."""

from dataclasses import replace

import numpy as np

from minicaps.data.images import Target

SMALLEST, LARGEST = 20, 32  # pixels per side; images within these limits keep their size
USUAL = 28  # longer side of images that are resized


def sized(target: Target, sizes) -> tuple[Target, tuple[str, ...]]:
    """Replace the size "auto" of a target for images of these sizes; return notes on it, too."""
    if target.size != "auto":
        return target, ()
    size, note = chosen_size(sizes, target.whole)
    return replace(target, size=size, whole=None), (note,) if note else ()


def chosen_size(sizes, whole=None) -> tuple[tuple[int, int], str | None]:
    """Choose a (height, width) for images of these sizes, and explain it if images are resized.

    Small images are enlarged, because networks need at least 17×17 pixels; large ones are reduced,
    because the time for training and the number of weights grow with the number of pixels. The
    proportions are those of the median height and width, but no side is shorter than `SMALLEST`.

    whole: function that enlarges a size until the network to train sees every row and column of it
    (see `minicaps.models.sizes.whole`), or None if the network is not known. By a few pixels, the
    result may exceed `USUAL` and `LARGEST`.
    """
    heights, widths = np.array(sizes).T
    found = int(np.median(heights)), int(np.median(widths))
    alike = len(set(sizes)) == 1
    if alike and min(found) >= SMALLEST and max(found) <= LARGEST:
        size = found
    else:
        size = tuple(max(SMALLEST, round(side * USUAL / max(found))) for side in found)
    height, width = whole(size) if whole else size
    if alike and (height, width) == found:
        return found, None
    before = f"{found[0]}×{found[1]}" if alike else _range(heights, widths)
    why = ", which the network sees whole" if (height, width) != size else ""
    return (height, width), (
        f"images of {before} pixels (height × width) are resized to {height}×{width}{why}; choose"
        " another size with --size"
    )


def _range(heights, widths):
    return f"{heights.min()} to {heights.max()} × {widths.min()} to {widths.max()}"
