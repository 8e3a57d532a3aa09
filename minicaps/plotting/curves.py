"""Figures of a training run: learning curves and reconstructions."""

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

IN_A_ROW = 10  # images


def curves(history: Sequence[dict], path: str | Path) -> None:
    """Draw the loss and error of each epoch.

    history: list of the rows of metrics.csv.
    """
    from matplotlib.ticker import MaxNLocator

    figure = new_figure(9, 3.6)
    epochs = [row["epoch"] for row in history]
    loss, error = figure.subplots(1, 2)
    for part, colour, marker in (("train", BLUE, "o"), ("validation", ORANGE, "s")):
        if f"{part}_loss" not in history[0]:
            continue
        style = {"color": colour, "marker": marker, "markersize": 4, "label": part}
        if part == "train":
            style["label"] = "train, while learning"
        loss.plot(epochs, [row[f"{part}_loss"] for row in history], **style)
        error.plot(epochs, [100 * (1 - row[f"{part}_accuracy"]) for row in history], **style)
    loss.set(title="Loss: falling means learning", ylabel="loss")
    error.set(title="Error: the gap shows overfitting", ylabel="wrong predictions, %")
    for axes in (loss, error):
        axes.set(
            xlabel="epoch", xlim=(0.5, len(epochs) + 0.5), ylim=(0, 1.05 * axes.dataLim.y1 or 1)
        )
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
    save(figure, path)


@names_as_they_are
def reconstructions(
    images: np.ndarray,
    drawn: np.ndarray,
    labels: Sequence,
    answers: Sequence,
    classes: int,
    path: str | Path,
) -> None:
    """Draw images (n, C, H, W) above their reconstructions, which have the same shape.

    labels, answers: names of the true and the predicted class of each image. classes: number of all
    classes, of which the images may show only some.
    """
    n, columns = len(images), min(len(images), IN_A_ROW)
    bands = -(-n // columns)
    shape = min(max(images.shape[2] / images.shape[3], 0.4), 2.5)  # height divided by width
    width = max(7, 0.6 + 1.1 * columns)  # inches; room for the title
    cell = min((width - 0.6) / columns, 1.4)
    height = 0.5 + bands * (0.95 + 2 * cell * shape)
    figure = new_figure(width, height)
    some = f"{len(set(labels))} of {classes} classes: " if len(set(labels)) < classes else ""
    title = f"{some}inputs above; below, reconstructions from the longest capsule"
    figure.suptitle(title[0].upper() + title[1:], color=INK)
    axes = figure.subplots(2 * bands, columns, squeeze=False)
    for k in range(bands * columns):
        above, below = axes[2 * (k // columns) : 2 * (k // columns) + 2, k % columns]
        if k >= n:
            above.axis("off"), below.axis("off")
            continue
        for one, picture in ((above, images[k]), (below, drawn[k])):
            one.imshow(channels_last(picture), cmap="gray", vmin=0, vmax=1)
            one.set(xticks=[], yticks=[])
        right, name = labels[k] == answers[k], fit(answers[k], cell - 0.2, 9, lines=2)
        above.set_title(fit(labels[k], cell - 0.1, 9, lines=2), color=INK, fontsize=9)
        colour = INK if right else ORANGE
        below.set_xlabel(name if right else f"{name} ✗", color=colour, fontsize=9)
    for above, below in axes[:, 0].reshape(-1, 2):
        above.set_ylabel("input", color=INK)
        below.set_ylabel("drawn", color=INK)
    save(figure, path)
