"""A contact sheet: samples of each class in a row, and some with their poses written above."""

import numpy as np

from minicaps.data.dataset import Split, of_class
from minicaps.data.images import fit

COLUMNS = 16
ROWS = 40  # classes; more would not be looked at
LARGEST = 64  # pixels of a side; larger pictures are shown smaller


def contact_sheet(path, split: Split, class_names, pose_names=(), *, ink=True):
    """Write a picture of the first samples of each class, of the first `ROWS` classes. Where the
    split has poses (n, d), a row below shows the first sample of every other class with its pose in
    words. Grey pictures are shown as ink on paper, or with ink=False as light in the dark."""
    from matplotlib.figure import Figure  # without pyplot: no window, no global state

    class_names = class_names[:ROWS]
    classes = range(len(class_names))
    poses = () if split.poses is None else split.poses
    posed = classes[::2] if len(poses) else ()
    below = 2.4 if posed else 0.2  # inches
    above = 0.62 * len(classes)
    figure = Figure(figsize=(11, above + below), layout="constrained")
    upper, lower = figure.subfigures(2, 1, squeeze=False, height_ratios=(above, below))[:, 0]

    samples = [np.flatnonzero(of_class(split.labels, label))[:COLUMNS] for label in classes]
    axes = upper.subplots()
    white = 0 if ink and split.images.shape[1] == 1 else 1  # as the page around it
    strips = [_strip(_small(split.images[row]), COLUMNS, white) for row in samples]
    _show(axes, np.concatenate(strips), ink)
    height = len(strips[0])
    axes.set_yticks(height * (np.arange(len(classes)) + 0.5) - 0.5, class_names)

    for column, label in enumerate(posed):
        axes = lower.add_subplot(1, len(posed), column + 1)
        first = samples[label][:1]
        _show(axes, _strip(split.images[first], 1))
        pose = zip(pose_names, poses[first[0]], strict=True)
        lines = [f"{name} {value:z.2f}" for name, value in pose]
        axes.set_title("\n".join(lines), fontsize=7, loc="left")
    figure.savefig(path, dpi=110)


def _small(images):
    """Images (n, channels, height, width), or smaller ones if a side exceeds `LARGEST`."""
    n, channels, *size = images.shape
    shrink = LARGEST / max(size)
    if shrink >= 1:
        return images
    size = [max(1, round(side * shrink)) for side in size]
    return np.array([fit(image, size) for image in images]).reshape(n, channels, *size)


def _strip(images, columns, blank=0):
    """Images (n, channels, height, width) side by side, then some of this value up to so many
    columns: (height, columns · width, channels)."""
    missing = np.full((columns - len(images), *images.shape[1:]), blank, dtype=images.dtype)
    return np.concatenate([*images, *missing], axis=-1).transpose(1, 2, 0)


def _show(axes, picture, ink=True):
    """A grey picture as ink on paper or as light, a coloured one as it is; no frame."""
    grey = picture.shape[-1] == 1
    colours = "gray_r" if ink else "gray"
    axes.imshow(picture[..., 0] if grey else picture, cmap=colours, vmin=0, vmax=1)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
