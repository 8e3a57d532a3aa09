"""Mosaics of small images that show convolution kernels or the meaning of capsule components."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from minicaps.data.lettering import fit, names_as_they_are
from minicaps.plotting.canvas import INK, channels_last, new_figure, save


@names_as_they_are
def sweeps(
    path: str | Path,
    drawn: np.ndarray,
    offsets: Sequence[float],
    name: str,
    numbers: Sequence[tuple],
    left_out: int = 0,
    *,
    alike: bool = False,
) -> None:
    """Draw the effect of capsule components on the reconstruction, with one component per row.

    drawn: (K, offsets, C, H, W). numbers: for each row, the component (from 1) and its standard
    deviation over images of the class. left_out: number of components without a visible effect.
    alike: whether all components have the same effect.
    """
    rows, columns = drawn.shape[:2]
    height, width = drawn.shape[3:]
    figure = new_figure(0.62 * columns + 1.8, max(3, 0.62 * height / width * rows + 1.7))
    title = f"Capsule of {fit(name, 3, 12)}: each row varies one of its numbers.\n"
    if alike:
        title += "All of them change the image in the same way: training may have been too short"
    else:
        title += "What changes along a row is what that number means"
    if left_out:
        title += f".\nNot shown: {left_out} whose effect would be invisible"
    figure.suptitle(title, color=INK)
    axes = figure.subplots()
    _show_mosaic(axes, drawn)
    axes.set_xticks(
        (np.arange(columns) + 0.5) * (width + 1) - 1,
        [f"{offset:+.2f}" if abs(offset) > 1e-9 else "0" for offset in offsets],
    )
    names = [f"{k} (±{spread:.2f})" for k, spread in numbers]
    axes.set_yticks((np.arange(rows) + 0.5) * (height + 1) - 1, names)
    axes.set(xlabel="added to the number", ylabel="number (± its spread)")
    save(figure, path)


def kernels(path: str | Path, weights: np.ndarray) -> None:
    """Draw the kernels (O, C, K, K) of the first convolution, in color if C is 3.

    They are expected in order of their use.
    """
    n, columns = len(weights), min(16, len(weights))
    rows = math.ceil(n / columns)
    cells = np.ones((rows * columns, *weights.shape[1:]))
    largest = abs(weights).max(axis=(1, 2, 3), keepdims=True)
    cells[:n] = 0.5 + 0.5 * weights / np.where(largest > 0, largest, 1)
    figure = new_figure(max(6, 0.55 * columns), max(2.5, 0.55 * rows * 6 / min(6, columns) + 1.2))
    colors = "white is positive, gray is zero, black is negative"
    if weights.shape[1] == 3:
        colors = "gray is zero; a color is positive, and its complement negative"
    figure.suptitle(
        "Kernels of the first convolution, the most used first:\n"
        f"a patch like one of these gives a large output\n({colors})",
        color=INK,
    )
    axes = figure.subplots()
    axes.axis("off")
    _show_mosaic(axes, cells.reshape(rows, columns, *weights.shape[1:]))
    save(figure, path)


def _show_mosaic(axes, pictures):
    """Show images (rows, columns, C, H, W) side by side, separated by white lines."""
    rows, columns, _, height, width = pictures.shape
    cells = [[channels_last(picture) for picture in row] for row in pictures]
    rest = cells[0][0].shape[2:]
    whole = np.ones((rows * (height + 1) - 1, columns * (width + 1) - 1, *rest))
    for r, row in enumerate(cells):
        for c, cell in enumerate(row):
            top, left = r * (height + 1), c * (width + 1)
            whole[top : top + height, left : left + width] = cell
    axes.imshow(whole, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axes.tick_params(length=0, labelsize=8)
    axes.spines[:].set_visible(False)
