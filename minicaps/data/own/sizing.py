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
    size, note = chosen_size(sizes)
    return replace(target, size=size), (note,) if note else ()


def chosen_size(sizes) -> tuple[tuple[int, int], str | None]:
    """Choose a (height, width) for images of these sizes, and explain it if images are resized.

    Small images are enlarged, because networks need at least 17×17 pixels; large ones are reduced,
    because the time for training and the number of weights grow with the number of pixels. The
    proportions are those of the median height and width, but no side is shorter than `SMALLEST`.
    """
    heights, widths = np.array(sizes).T
    found = int(np.median(heights)), int(np.median(widths))
    alike = len(set(sizes)) == 1
    if alike and min(found) >= SMALLEST and max(found) <= LARGEST:
        return found, None
    height, width = (max(SMALLEST, round(side * USUAL / max(found))) for side in found)
    before = f"{found[0]}×{found[1]}" if alike else _range(heights, widths)
    return (height, width), (
        f"images of {before} pixels (height × width) are resized to {height}×{width}; choose"
        " another size with --size"
    )


def _range(heights, widths):
    return f"{heights.min()} to {heights.max()} × {widths.min()} to {widths.max()}"
