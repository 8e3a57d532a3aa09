"""A contact sheet: samples of each class in a row, and some with their poses written above."""

import numpy as np

from minicaps.data.dataset import Split

COLUMNS = 16


def contact_sheet(path, split: Split, class_names, pose_names=()):
    """Write a picture of the first samples of each class. Where the split has poses (n, d), a row
    below shows the first sample of every other class with its pose in words."""
    from matplotlib.figure import Figure  # without pyplot: no window, no global state

    classes = range(len(class_names))
    posed = () if split.poses is None else classes[::2]
    below = 2.4 if posed else 0.2  # inches
    above = 0.62 * len(classes)
    figure = Figure(figsize=(11, above + below), layout="constrained")
    upper, lower = figure.subfigures(2, 1, height_ratios=(above, below))

    samples = [np.flatnonzero(split.labels == label)[:COLUMNS] for label in classes]
    axes = upper.subplots()
    _show(axes, np.concatenate([_strip(split.images[row], COLUMNS) for row in samples]))
    height = split.images.shape[2]
    axes.set_yticks(height * (np.arange(len(classes)) + 0.5) - 0.5, class_names)

    for column, label in enumerate(posed):
        axes = lower.add_subplot(1, len(posed), column + 1)
        first = samples[label][:1]
        _show(axes, _strip(split.images[first], 1))
        pose = zip(pose_names, split.poses[first[0]], strict=True)
        lines = [f"{name} {value:.2f}" for name, value in pose]
        axes.set_title("\n".join(lines), fontsize=7, loc="left")
    figure.savefig(path, dpi=110)


def _strip(images, columns):
    """Images (n, channels, height, width) side by side, then blank ones up to so many columns:
    (height, columns · width, channels)."""
    blank = np.zeros((columns - len(images), *images.shape[1:]), dtype=images.dtype)
    return np.concatenate([*images, *blank], axis=-1).transpose(1, 2, 0)


def _show(axes, picture):
    """A grey picture as ink on paper, a coloured one as it is; no frame."""
    grey = picture.shape[-1] == 1
    axes.imshow(
        picture[..., 0] if grey else picture, cmap="gray_r" if grey else None, vmin=0, vmax=1
    )
    axes.set_xticks([])
    axes.set_yticks([])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
