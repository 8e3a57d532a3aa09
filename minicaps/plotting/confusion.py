"""Figures of an evaluation: the confusion matrix and the worst predictions."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from minicaps.data.lettering import fit, names_as_they_are
from minicaps.plotting.canvas import (
    BLUE,
    INK,
    ORANGE,
    channels_last,
    new_figure,
    save,
)

LONGEST = 1.5  # inches of a name
MOST_NUMBERS = 24  # classes; with more, the numbers would be unreadable
MOST_CLASSES = 40  # with more, only the most confused classes are drawn


@names_as_they_are
def confusion(counts: np.ndarray, class_names: Sequence[str], path: str | Path) -> None:
    """Draw a confusion matrix (J, J), with true classes as rows and predicted classes as columns.

    counts: integers (J, J). The shade is the square root of the count divided by its row total, so
    that even one image in a hundred is visible. Of more than `MOST_CLASSES` classes, only the most
    confused are drawn, and the others are counted together.
    """
    title = _title_of_confusion(counts, class_names)
    gathered = len(counts) > MOST_CLASSES
    if gathered:
        title = f"The {MOST_NUMBERS - 1} most confused of {len(counts)} classes.\n{title}"
        counts, class_names = others_together(counts, class_names)
    n = len(counts)
    side = min(max(4.5, 1.5 + 0.36 * n), 12)  # inches
    figure = new_figure(side + 0.8, side + 0.9)
    axes = figure.subplots()
    right, others = np.eye(n, dtype=bool), np.zeros((n, n), dtype=bool)
    if gathered:  # correct and wrong predictions together
        others[-1, -1], right[-1, -1] = True, False
    shares = np.sqrt(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1))
    for which, colour in ((right, BLUE), (others, INK), (~right & ~others, ORANGE)):
        axes.imshow(np.ma.array(shares, mask=~which), cmap=_shades(colour), vmin=0, vmax=1)
    figure.suptitle(title, color=INK, fontsize=10)
    axes.set_xlabel("answer", color=INK)
    axes.set_ylabel("class", color=INK)
    size = 9 if n <= MOST_NUMBERS else max(4.5, 9 * MOST_NUMBERS / n)
    names = [fit(name, LONGEST, size) for name in class_names]
    upright = max(map(len, names)) > 2
    places = np.arange(n)
    axes.set_xticks(places, names, fontsize=size, rotation=90 if upright else 0)
    axes.set_yticks(places, names, fontsize=size)
    axes.tick_params(length=0)
    if n <= MOST_NUMBERS:
        size = min(9, 26 / len(str(counts.max())))
        for k, j in np.argwhere(counts):
            colour = "white" if shares[k, j] > 0.6 else INK
            axes.text(j, k, counts[k, j], ha="center", va="center", fontsize=size, color=colour)
    save(figure, path)


def others_together(counts, class_names):
    """Return the counts and names of the most confused classes, and of all others together."""
    wrong = counts - np.diag(counts.diagonal())
    order = np.argsort(-(wrong.sum(axis=0) + wrong.sum(axis=1)), kind="stable")
    kept = np.sort(order[: MOST_NUMBERS - 1])
    group = np.full(len(counts), len(kept))
    group[kept] = np.arange(len(kept))
    gathered = np.zeros((len(kept) + 1, len(kept) + 1), counts.dtype)
    np.add.at(gathered, (group[:, None], group), counts)
    return gathered, [*(class_names[k] for k in kept), f"{len(counts) - len(kept)} others"]


def _title_of_confusion(counts, class_names):
    wrong = counts - np.diag(counts.diagonal())
    right, total = counts.trace(), counts.sum()
    said = f"Blue: {right:,} of {total:,} correct. "
    if not wrong.any():
        return said + "No wrong predictions"
    k, j = np.unravel_index(wrong.argmax(), wrong.shape)
    said += f"Orange: {total - right:,} wrong,\nmost often "
    names = [fit(class_names[which], LONGEST, 10) for which in (k, j)]
    return f"{said}{names[0]} taken for {names[1]} ({wrong.max():,})"


@names_as_they_are
def worst(
    images: np.ndarray,
    drawn: np.ndarray | Sequence | None,
    captions: Sequence,
    wrong: np.ndarray,
    path: str | Path,
) -> None:
    """Draw images above their reconstructions, starting with the worst predictions.

    images (n, C, H, W). drawn: reconstructions (n, C, H, W) from the capsules of the strongest
    rival and of the true class, or None without a decoder. captions: two texts for each image, its
    class and its rival. wrong (n,): whether the rival was predicted.
    """
    n, rows = len(images), [images, *(drawn or ())]
    shape = min(max(images.shape[2] / images.shape[3], 0.4), 2.5)  # height divided by width
    height = 1.7 + (0.3 + 1.1 * shape) * len(rows)
    figure = new_figure(max(8.6, 1 + 1.2 * n), max(2.4, height))  # inches; room for the title
    figure.suptitle(_title_of_worst(drawn, wrong), color=INK, fontsize=11)
    axes = figure.subplots(len(rows), n, squeeze=False)
    for k, (own, rival) in enumerate(captions):
        for row, pictures in enumerate(rows):
            axes[row, k].imshow(channels_last(pictures[k]), cmap="gray", vmin=0, vmax=1)
            axes[row, k].set(xticks=[], yticks=[])
        axes[0, k].set_title(fit(own, 1.1, 8, lines=3), color=INK, fontsize=8)
        mark, colour = (" ✗", ORANGE) if wrong[k] else ("", INK)
        axes[0, k].set_xlabel(fit(rival, 1, 8, lines=3) + mark, color=colour, fontsize=8)
    names = ("image", "drawn as\nthe rival", "drawn as\nits class")[: len(rows)]
    for row, name in enumerate(names):
        axes[row, 0].set_ylabel(name, color=INK)
    save(figure, path)


def _title_of_worst(drawn, wrong):
    if any(wrong):
        said = "Worst predictions first: above each image its class, below the strongest rival"
        said += ", ✗ if that was predicted."
    else:
        said = "No wrong predictions. Closest first: above its class, below the strongest rival."
    return said + ("\nWhich drawing looks more like the image?" if drawn else "")


def _shades(colour):
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list(colour, ["white", colour])
