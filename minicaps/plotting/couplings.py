"""Figures of what a network makes of one picture, and of what it looks for."""

import math

import numpy as np

from minicaps.plotting.canvas import (
    BLUE,
    INK,
    channels_last,
    names_as_they_are,
    new_figure,
    save,
    short,
)

SEEN = 0.5  # a class whose score is above it is there
SHADES = "cividis"  # light means more, in grey print too
PALE = "#B8C4CC"
SHOWN = 30  # bars that can be read
ROWS = 5  # iterations


@names_as_they_are
def prediction(path, picture, ranking, score, headline, *, shares=None, drawn=None):
    """Draw a picture (C, H, W) as the network sees it, and what the network says of it.

    ranking: [(name, score)], highest first; score: what it is called. shares: (map, grid, equal),
    as in `_show_shares`. drawn: what the decoder makes of the answer's capsule, (C, H, W).
    """
    panels = 2 + (shares is not None) + (drawn is not None)
    bars = min(len(ranking), SHOWN)
    figure = new_figure(3.1 * panels + 0.6, max(3.7, 0.9 + 0.2 * bars))
    figure.suptitle(headline, color=INK)
    axes = iter(figure.subplots(1, panels))
    _show_picture(next(axes), picture, "As the network sees it")
    _bars(next(axes), ranking, score)
    if shares is not None:
        _show_shares(figure, next(axes), *shares, picture=picture)
    if drawn is not None:
        _show_picture(next(axes), drawn, "Drawn from the answer's capsule")
    save(figure, path)


def _bars(axes, ranking, score):
    """Scores from 0 to 1 as bars, the highest above."""
    names = [short(name) for name, _ in ranking[:SHOWN]]
    values = [value for _, value in ranking[:SHOWN]]
    places = range(len(values))
    axes.barh(
        places,
        values,
        color=[BLUE if k == 0 or value > SEEN else PALE for k, value in enumerate(values)],
    )
    axes.set_yticks(places, names, fontsize=10 if len(values) <= 12 else 8)
    axes.invert_yaxis()
    axes.axvline(SEEN, color=INK, linewidth=1, linestyle="--")
    axes.set(xlim=(0, 1), xlabel=score)
    more = f" (the first {SHOWN} of {len(ranking)})" if len(ranking) > SHOWN else ""
    axes.set_title(f"Above {SEEN}: seen{more}", fontsize=10, color=INK)


def _show_shares(figure, axes, shares, grid, equal, *, picture, title=None, spread=0):
    """Draw the shares (rows, columns) that children send to a parent, where they look in a picture.

    grid: `minicaps.models.sizes.ChildrenGrid`. equal: the share if a child sent the same to all; it
    is the middle of the shades, which reach as far as the shares do, and `spread` at least.
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
    axes.set_title(title or "Parts that vote for it: light", fontsize=10, color=INK)
    bar = figure.colorbar(image, ax=axes, shrink=0.75, format="%.2g")
    bar.set_ticks([ends[0], equal, ends[1]])


def _show_picture(axes, picture, title):
    axes.imshow(channels_last(picture), cmap="gray", vmin=0, vmax=1)
    axes.set(xticks=[], yticks=[])
    axes.set_title(title, fontsize=10, color=INK)


@names_as_they_are
def couplings(path, picture, columns, entropies, most, grid):
    """Draw where the children lie that choose a parent, iteration by iteration, a row for each.

    columns: [(title, maps, equal)], maps (iterations, rows, columns); entropies: of every
    iteration, in nats, of at most `most`; grid: `minicaps.models.sizes.ChildrenGrid`. Of many
    iterations, `ROWS` are drawn, the first and the last among them.
    """
    drawn = np.unique(np.linspace(0, len(entropies) - 1, ROWS).round().astype(int))
    n = len(drawn)
    figure = new_figure(3.4 * len(columns) + 0.8, 2.9 * n + 0.8)
    figure.suptitle(
        "Couplings: lighter is a larger share for that capsule.\n"
        "Falling entropy: the children choose",
        color=INK,
    )
    axes = figure.subplots(n, len(columns), squeeze=False)
    for k, (name, maps, equal) in enumerate(columns):
        spread = abs(maps - equal).max()
        for row, t in enumerate(drawn):
            title = "" if row else f"{name}\n"
            title += f"iteration {t + 1}: entropy {entropies[t]:.3f} of {most:.3f}"
            shown = {"picture": picture, "title": title, "spread": spread}
            _show_shares(figure, axes[row, k], maps[t], grid, equal, **shown)
    save(figure, path)


@names_as_they_are
def sweeps(path, drawn, offsets, name):
    """Draw what the decoder makes of a capsule when one of its numbers is moved: a row for each.

    drawn: (D, offsets, C, H, W).
    """
    rows, columns = drawn.shape[:2]
    height, width = drawn.shape[3:]
    figure = new_figure(0.62 * columns + 1.2, 0.62 * height / width * rows + 1.4)
    figure.suptitle(
        f"Capsule of {short(name)}: each row moves one of its numbers.\n"
        "What changes along a row is what the number means",
        color=INK,
    )
    axes = figure.subplots()
    _show_mosaic(axes, drawn)
    axes.set_xticks(
        (np.arange(columns) + 0.5) * (width + 1) - 1,
        [f"{offset:+.2f}" if abs(offset) > 1e-9 else "0" for offset in offsets],
    )
    axes.set_yticks((np.arange(rows) + 0.5) * (height + 1) - 1, range(1, rows + 1))
    axes.set(xlabel="added to the number", ylabel="number")
    save(figure, path)


def kernels(path, weights):
    """Draw the kernels (O, C, K, K) of the first convolution; three channels as colours."""
    n, columns = len(weights), min(16, len(weights))
    rows = math.ceil(n / columns)
    cells = np.ones((rows * columns, *weights.shape[1:]))
    largest = abs(weights).max(axis=(1, 2, 3), keepdims=True)
    cells[:n] = 0.5 + 0.5 * weights / np.where(largest > 0, largest, 1)
    figure = new_figure(max(6, 0.55 * columns), max(2.5, 0.55 * rows * 6 / min(6, columns) + 1))
    figure.suptitle(
        "Kernels of the first convolution: a patch like one of these\n"
        "gives a large output (white is positive, grey is zero, black is negative)",
        color=INK,
    )
    axes = figure.subplots()
    axes.axis("off")
    _show_mosaic(axes, cells.reshape(rows, columns, *weights.shape[1:]))
    save(figure, path)


def _show_mosaic(axes, pictures):
    """Show pictures (rows, columns, C, H, W) side by side, a white line between."""
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
