"""Figures of couplings, which show the positions of the image parts that vote for a class."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from minicaps.data.lettering import fit, names_as_they_are
from minicaps.plotting.canvas import INK, new_figure, save

SHADES = "cividis"  # lighter means more, even in grayscale print
ROWS = 5  # iterations drawn


@names_as_they_are
def couplings(
    path: str | Path,
    picture: np.ndarray,
    columns: Sequence[tuple],
    entropies: Sequence[float],
    most: float,
    grid: tuple,
) -> None:
    """Draw the positions of the children that choose a parent, with one row for each iteration.

    columns: list of (title, maps, equal), with maps (iterations, rows, columns) and the same
    `equal`, the share of a child divided equally among all parents. entropies: entropy
    at each iteration in nats; most: its largest possible value. grid: a
    `minicaps.models.sizes.ChildrenGrid`. If there are more than `ROWS` iterations, only `ROWS` of
    them are drawn, including the first and the last. All maps share one linear color scale.
    """
    drawn = np.unique(np.linspace(0, len(entropies) - 1, ROWS).round().astype(int))
    n = len(drawn)
    figure = new_figure(3.4 * len(columns) + 0.8, 2.9 * n + 0.8)
    figure.suptitle(
        "Couplings: the lighter, the larger the share, on one linear scale.\n"
        "Falling entropy: the children choose",
        color=INK,
    )
    axes = figure.subplots(n, len(columns), squeeze=False)
    equal = columns[0][2]
    ends = ends_of_scale(np.array([maps for _, maps, _ in columns]), equal)
    for k, (name, maps, _) in enumerate(columns):
        for row, t in enumerate(drawn):
            title = "" if row else fit(name, 3, 10, lines=2) + "\n"
            title += f"iteration {t + 1}: entropy {entropies[t]:.3f} of {most:.3f}"
            image = show_shares(axes[row, k], maps[t], grid, ends, picture=picture, title=title)
    label_shares(figure.colorbar(image, ax=axes, aspect=15 * n, shrink=0.8), equal)
    save(figure, path)


def show_shares(axes, shares, grid, ends, *, picture, title):
    """Draw the share that each child sends to a parent at the child's position in the image.

    shares: (rows, columns). grid: a `minicaps.models.sizes.ChildrenGrid`. ends: lowest and highest
    share of the linear color scale. Returns Matplotlib's image, for `label_shares`.
    """
    rows, columns = shares.shape
    low, step = grid.first - grid.step / 2, grid.step
    extent = (low, low + step * columns, low + step * rows, low)
    image = axes.imshow(shares, cmap=SHADES, extent=extent, vmin=ends[0], vmax=ends[1])
    height, width = picture.shape[1:]
    ink = picture.mean(axis=0)
    if ink.min() < ink.max():
        level = (ink.min() + ink.max()) / 2
        axes.contour(ink, [level], colors="white", linewidths=2.5)
        axes.contour(ink, [level], colors="black", linewidths=1)
    axes.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5), xticks=[], yticks=[])
    axes.set_aspect("equal")
    axes.set_title(title, fontsize=10, color=INK)
    return image


def ends_of_scale(shares, equal):
    """Return the lowest and the highest share, at least a tenth away from an equal division."""
    return min(shares.min(), 0.9 * equal), max(shares.max(), 1.1 * equal)


def label_shares(bar, equal):
    """Label a color bar of shares, and mark the share of an equal division among all parents."""
    label = f"mean share of a child\n(line: {equal:.3g}, an equal division)"
    bar.set_label(label, color=INK, fontsize=9)
    bar.ax.axhline(equal, color="white", linewidth=2)
    bar.ax.axhline(equal, color="black", linewidth=1)
