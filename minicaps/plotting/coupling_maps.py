"""Figures of couplings, which show the positions of the image parts that vote for a class."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from minicaps.plotting.canvas import INK, names_as_they_are, new_figure, save

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

    columns: list of (title, maps, equal), with maps (iterations, rows, columns). entropies: entropy
    at each iteration in nats; most: its largest possible value. grid: a
    `minicaps.models.sizes.ChildrenGrid`. If there are more than `ROWS` iterations, only `ROWS` of
    them are drawn, including the first and the last.
    """
    drawn = np.unique(np.linspace(0, len(entropies) - 1, ROWS).round().astype(int))
    n = len(drawn)
    figure = new_figure(3.4 * len(columns) + 0.8, 2.9 * n + 0.8)
    figure.suptitle(
        "Couplings: the lighter, the larger the share.\nFalling entropy: the children choose",
        color=INK,
    )
    axes = figure.subplots(n, len(columns), squeeze=False)
    for k, (name, maps, equal) in enumerate(columns):
        spread = abs(maps - equal).max()
        for row, t in enumerate(drawn):
            title = "" if row else f"{name}\n"
            title += f"iteration {t + 1}: entropy {entropies[t]:.3f} of {most:.3f}"
            shown = {"picture": picture, "title": title, "spread": spread}
            show_shares(figure, axes[row, k], maps[t], grid, equal, **shown)
    save(figure, path)


def show_shares(figure, axes, shares, grid, equal, *, picture, title=None, spread=0):
    """Draw the share that each child sends to a parent at the child's position in the image.

    shares: (rows, columns). grid: a `minicaps.models.sizes.ChildrenGrid`. equal: share of a child
    that is divided equally among all parents, drawn in the middle shade. spread: minimum range of
    the color scale above and below `equal`; the scale is extended to cover all shares.
    """
    from matplotlib.colors import TwoSlopeNorm

    spread = max(spread, abs(shares - equal).max(), equal / 10)
    rows, columns = shares.shape
    low, step = grid.first - grid.step / 2, grid.step
    extent = (low, low + step * columns, low + step * rows, low)
    ends = max(0, equal - spread), equal + spread
    shades = TwoSlopeNorm(equal, *ends)
    image = axes.imshow(shares, cmap=SHADES, extent=extent, norm=shades)
    height, width = picture.shape[1:]
    ink = picture.mean(axis=0)
    if ink.min() < ink.max():
        level = (ink.min() + ink.max()) / 2
        axes.contour(ink, [level], colors="white", linewidths=2.5)
        axes.contour(ink, [level], colors="black", linewidths=1)
    axes.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5), xticks=[], yticks=[])
    axes.set_aspect("equal")
    axes.set_title(title or "Light: parts that vote for it", fontsize=10, color=INK)
    bar = figure.colorbar(image, ax=axes, shrink=0.75, format="%.2g")
    bar.set_ticks([ends[0], equal, ends[1]])
