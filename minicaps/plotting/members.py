"""Figures of multi-label images."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from minicaps.data.lettering import fit, names_as_they_are
from minicaps.plotting.canvas import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PINK,
    channels_last,
    new_figure,
    save,
)

LISTED = 4  # names of the classes in an image
MEMBERS = (BLUE, ORANGE, GREEN, PINK)  # colors of the classes in an image


@names_as_they_are
def members(
    images: np.ndarray,
    drawn: np.ndarray | None,
    labels: np.ndarray,
    seen: np.ndarray,
    class_names: Sequence[str],
    path: str | Path,
    *,
    title: str | None = None,
) -> None:
    """Draw multi-label images with a reconstruction of every class in each image.

    images (n, C, H, W). drawn (n, P, C, H, W): reconstructions of the classes in labels (n, J), in
    class order, or None without a decoder. seen (n, J): the predicted classes. title: replaces the
    default title.
    """
    n, most = len(images), 0 if drawn is None else drawn.shape[1]
    names = ["image", "all drawn", *(f"drawn {k + 1}" for k in range(most))]
    names = names[: 2 + most if most else 1]
    figure = new_figure(max(7, 1.3 + 1.2 * n), 1.3 + 1.3 * len(names))
    titles = [title or "Several classes in an image"]
    if most:
        titles.append("below, each is redrawn from its own capsule alone")
    figure.suptitle(": ".join(titles), color=INK, fontsize=11)
    axes = figure.subplots(len(names), n, squeeze=False)
    for k in range(n):
        rows = [images[k]] if drawn is None else [images[k], *drawn[k]]
        rows = [channels_last(row) for row in rows]
        if drawn is not None and most:
            rows.insert(1, overlaid(drawn[k]))
        _column(axes[:, k], rows, labels[k], seen[k], class_names)
    for row, name in enumerate(names):
        axes[row, 0].set_ylabel(name, color=INK)
    save(figure, path)


def _column(axes, rows, labels, seen, class_names):
    """Draw an image of `members` above its reconstructions, with labels in the class colors."""
    present, answer = (
        [fit(class_names[k], 1.1, 9) for k in np.flatnonzero(which)] for which in (labels, seen)
    )
    for one, picture in zip(axes, rows, strict=True):
        one.imshow(picture, cmap="gray", vmin=0, vmax=1)
        one.set(xticks=[], yticks=[])
    axes[0].set_title(_listed(present), color=INK, fontsize=9)
    right = (seen == labels).all()
    axes[0].set_xlabel(
        "seen: " + ("\n" if answer else "") + _listed(answer) + ("" if right else " ✗"),
        color=INK if right else ORANGE,
        fontsize=8,
    )
    for k, one in enumerate(axes[2:]):
        if k < len(present):
            one.set_xlabel(present[k], color=MEMBERS[k % len(MEMBERS)], fontsize=9)
        else:
            one.get_images()[0].set_visible(False)
            one.set_frame_on(False)


def _listed(names):
    """List names one below the other, only `LISTED` of them if there are more."""
    more = [f"and {len(names) - LISTED} more"] if len(names) > LISTED else []
    return ",\n".join([*names[:LISTED], *more]) or "none"


def overlaid(drawn):
    """Overlay images (P, C, H, W) in the colors of `MEMBERS`, and return an image (H, W, 3)."""
    picture = np.zeros((*drawn.shape[2:], 3))
    for k, one in enumerate(drawn.mean(axis=1)):
        colour = MEMBERS[k % len(MEMBERS)]
        rgb = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        picture += one[..., None] * rgb
    return np.minimum(picture, 1)
