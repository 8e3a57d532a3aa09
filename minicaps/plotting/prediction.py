"""Figure of a network's prediction for one image."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from minicaps.data.lettering import fit, names_as_they_are
from minicaps.plotting.canvas import (
    BLUE,
    INK,
    channels_last,
    new_figure,
    save,
)
from minicaps.plotting.coupling_maps import ends_of_scale, label_shares, show_shares

PALE = "#B8C4CC"
LONGEST = 1.6  # inches of a name
SHOWN = 30  # bars, as many as are readable


@names_as_they_are
def prediction(
    path: str | Path,
    picture: np.ndarray,
    ranking: Sequence[tuple[str, float]],
    score: str,
    limit: float,
    headline: str,
    *,
    shares: tuple | None = None,
    drawn: np.ndarray | None = None,
) -> None:
    """Draw an image (C, H, W) as the network sees it, together with the prediction.

    ranking: list of (name, score), highest first. score: name of the score. limit: score above
    which a class is seen. shares: (map, grid, equal), with the share `equal` of a child divided
    equally among all parents. drawn: reconstruction (C, H, W) from the capsule of the predicted
    class.
    """
    panels = 2 + (shares is not None) + (drawn is not None)
    bars = min(len(ranking), SHOWN)
    figure = new_figure(3.1 * panels + 0.6, max(3.7, 0.9 + 0.2 * bars))
    figure.suptitle(fit(headline, figure.get_figwidth() - 0.4, 12, lines=3), color=INK)
    axes = iter(figure.subplots(1, panels))
    _show_picture(next(axes), picture, "As the network sees it")
    _bars(next(axes), ranking, score, limit)
    if shares is not None:
        _show_shares(figure, next(axes), shares, picture)
    if drawn is not None:
        _show_picture(next(axes), drawn, "Redrawn from the predicted class")
    save(figure, path)


def _bars(axes, ranking, score, limit):
    """Draw scores from 0 to 1 as bars, with the highest score at the top."""
    values = [value for _, value in ranking[:SHOWN]]
    size = 10 if len(values) <= 12 else 8
    names = [fit(name, LONGEST, size) for name, _ in ranking[:SHOWN]]
    places = range(len(values))
    axes.barh(
        places,
        values,
        color=[BLUE if k == 0 or value > limit else PALE for k, value in enumerate(values)],
    )
    axes.set_yticks(places, names, fontsize=size)
    axes.invert_yaxis()
    axes.axvline(limit, color=INK, linewidth=1, linestyle="--")
    axes.set(xlim=(0, 1), xlabel=score)
    more = f" (first {SHOWN} of {len(ranking)})" if len(ranking) > SHOWN else ""
    axes.set_title(f"Above {limit:.2g}: seen{more}", fontsize=10, color=INK)


def _show_shares(figure, axes, shares, picture):
    map_, grid, equal = shares
    ends, title = ends_of_scale(map_, equal), "Light: parts that vote for it"
    image = show_shares(axes, map_, grid, ends, picture=picture, title=title)
    label_shares(figure.colorbar(image, ax=axes, shrink=0.75), equal)


def _show_picture(axes, picture, title):
    axes.imshow(channels_last(picture), cmap="gray", vmin=0, vmax=1)
    axes.set(xticks=[], yticks=[])
    axes.set_title(title, fontsize=10, color=INK)
