"""Contact sheet with a row of samples per class, and some samples labeled with their poses."""

import numpy as np

from minicaps.data.augmentation import Augmentation
from minicaps.data.batches import augmented
from minicaps.data.dataset import Split, of_class
from minicaps.data.images import fit as resized
from minicaps.data.lettering import fit, names_as_they_are
from minicaps.storage import replacing

COLUMNS = 16
ROWS = 40  # the largest number of classes shown
LONGEST = 1.8  # inches of a class name
LARGEST = 64  # pixels per side; larger images are shrunk


@names_as_they_are
def contact_sheet(
    path, split: Split, class_names, pose_names=(), *, ink=True, changes: Augmentation | None = None
):
    """Write a figure that shows the first samples of up to `ROWS` classes.

    If there are `changes`, the samples of each class are shown a second time in the row below,
    augmented as in training, and repeated if they are fewer than the columns.

    If the split has poses (n, d), an additional row shows the first sample of every second class,
    labeled with its pose. Grayscale images are drawn dark on light, like ink on paper, unless `ink`
    is False.
    """
    from matplotlib.figure import Figure  # without pyplot: no window, no global state

    shown = [fit(name, LONGEST, 10) for name in class_names[:ROWS]]
    classes = range(len(shown))
    poses = () if split.poses is None else split.poses
    posed = classes[::2] if len(poses) else ()
    below = 2.4 if posed else 0.2  # inches
    above = 0.62 * len(classes) * (2 if changes else 1)
    above += 0.3 if len(shown) < len(class_names) else 0
    figure = Figure(figsize=(11, above + below), layout="constrained")
    upper, lower = figure.subfigures(2, 1, squeeze=False, height_ratios=(above, below))[:, 0]

    samples = [np.flatnonzero(of_class(split.labels, label))[:COLUMNS] for label in classes]
    axes = upper.subplots()
    white = 0 if ink and split.images.shape[1] == 1 else 1  # the color of the page
    strips = []
    for k, row in enumerate(samples):
        strips.append(_strip(_small(split.images[row]), COLUMNS, white))
        if changes:
            again = split.images[np.resize(row, COLUMNS if len(row) else 0)]
            again = augmented(again, changes, None, seed=0, epoch=0, index=k)
            strips.append(_strip(_small(again), COLUMNS, white))
    _show(axes, np.concatenate(strips), ink)
    height = len(strips[0]) * (2 if changes else 1)
    if len(shown) < len(class_names):
        axes.set_title(f"{len(shown)} of {len(class_names)} classes", fontsize=10)
    axes.set_yticks(height * (np.arange(len(classes)) + 0.5) - 0.5, shown)

    for column, label in enumerate(posed):
        axes = lower.add_subplot(1, len(posed), column + 1)
        first = samples[label][:1]
        _show(axes, _strip(split.images[first], 1))
        pose = zip(pose_names, poses[first[0]], strict=True)
        lines = [f"{name} {value:z.2f}" for name, value in pose]
        axes.set_title("\n".join(lines), fontsize=7, loc="left")
    with replacing(path) as file:
        figure.savefig(file, format="png", dpi=110)


def _small(images):
    """Shrink images (n, channels, height, width) so that no side exceeds `LARGEST` pixels."""
    n, channels, *size = images.shape
    shrink = LARGEST / max(size)
    if shrink >= 1:
        return images
    size = [max(1, round(side * shrink)) for side in size]
    return np.array([resized(image, size) for image in images]).reshape(n, channels, *size)


def _strip(images, columns, blank=0):
    """Place images (n, channels, height, width) side by side in one row.

    The result has shape (height, columns · width, channels). Missing columns are filled with the
    value `blank`.
    """
    missing = np.full((columns - len(images), *images.shape[1:]), blank, dtype=images.dtype)
    return np.concatenate([*images, *missing], axis=-1).transpose(1, 2, 0)


def _show(axes, picture, ink=True):
    """Show an image without axes; see `contact_sheet` for the argument `ink`."""
    grey = picture.shape[-1] == 1
    colours = "gray_r" if ink else "gray"
    axes.imshow(picture[..., 0] if grey else picture, cmap=colours, vmin=0, vmax=1)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
