"""Pictures of a run. Matplotlib is imported when a picture is drawn, never with minicaps."""

import numpy as np

from minicaps.checkpoint import replacing

INK = "#444444"
BLUE, ORANGE = "#0072B2", "#D55E00"  # told apart by colour-blind readers and in grey print


def _figure(width, height):
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _save(figure, path):
    with replacing(path) as file:
        figure.savefig(file, format="png", dpi=120, facecolor="white")


def curves(history, path):
    """Draw loss and error by epoch; history is a list of the rows of metrics.csv."""
    from matplotlib.ticker import MaxNLocator

    figure = _figure(9, 3.6)
    epochs = [row["epoch"] for row in history]
    loss, error = figure.subplots(1, 2)
    for part, colour, marker in (("train", BLUE, "o"), ("validation", ORANGE, "s")):
        if f"{part}_loss" not in history[0]:
            continue
        style = {"color": colour, "marker": marker, "markersize": 4, "label": part}
        if part == "train":
            style["label"] = "train, while it learns"
        loss.plot(epochs, [row[f"{part}_loss"] for row in history], **style)
        error.plot(epochs, [100 * (1 - row[f"{part}_accuracy"]) for row in history], **style)
    loss.set(title="Loss: falling means learning", ylabel="loss")
    error.set(title="Error: the gap shows overfitting", ylabel="wrong answers, %")
    for axes in (loss, error):
        axes.set(
            xlabel="epoch", xlim=(0.5, len(epochs) + 0.5), ylim=(0, 1.05 * axes.dataLim.y1 or 1)
        )
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
    _save(figure, path)


def reconstructions(images, drawn, labels, answers, path):
    """Draw inputs above their reconstructions; images and drawn (n, C, H, W), names of classes."""
    n = len(images)
    figure = _figure(max(6, 1 + 0.95 * n), 2.7)  # inches, at least for the title
    figure.suptitle(
        "Input above; below, what the decoder draws from the longest capsule", color=INK
    )
    axes = figure.subplots(2, n, squeeze=False)
    for k in range(n):
        for row, picture in ((0, images[k]), (1, drawn[k])):
            axes[row, k].imshow(_channels_last(picture), cmap="gray", vmin=0, vmax=1)
            axes[row, k].set(xticks=[], yticks=[])
        right = labels[k] == answers[k]
        axes[0, k].set_title(labels[k], color=INK)
        axes[1, k].set_xlabel(
            answers[k] if right else f"{answers[k]} ✗", color=INK if right else ORANGE
        )
    axes[0, 0].set_ylabel("input", color=INK)
    axes[1, 0].set_ylabel("drawn", color=INK)
    _save(figure, path)


def _channels_last(picture):
    """(C, H, W) -> (H, W) for one channel, (H, W, 3) for three; more are averaged."""
    if len(picture) == 3:
        return np.moveaxis(picture, 0, -1)
    return picture.mean(axis=0)
