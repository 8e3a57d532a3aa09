"""Figures of a training run: learning curves and reconstructions."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from minicaps.plotting.canvas import (
    BLUE,
    INK,
    ORANGE,
    channels_last,
    names_as_they_are,
    new_figure,
    save,
)


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
    images: np.ndarray, drawn: np.ndarray, labels: Sequence, answers: Sequence, path: str | Path
) -> None:
    """Draw images (n, C, H, W) above their reconstructions, which have the same shape.

    labels, answers: names of the true and the predicted class of each image.
    """
    n = len(images)
    figure = new_figure(max(6, 1 + 0.95 * n), 2.7)  # inches; room for the title
    figure.suptitle("Inputs above; below, reconstructions from the longest capsule", color=INK)
    axes = figure.subplots(2, n, squeeze=False)
    for k in range(n):
        for row, picture in ((0, images[k]), (1, drawn[k])):
            axes[row, k].imshow(channels_last(picture), cmap="gray", vmin=0, vmax=1)
            axes[row, k].set(xticks=[], yticks=[])
        right = labels[k] == answers[k]
        axes[0, k].set_title(labels[k], color=INK)
        axes[1, k].set_xlabel(
            answers[k] if right else f"{answers[k]} ✗", color=INK if right else ORANGE
        )
    axes[0, 0].set_ylabel("input", color=INK)
    axes[1, 0].set_ylabel("drawn", color=INK)
    save(figure, path)
