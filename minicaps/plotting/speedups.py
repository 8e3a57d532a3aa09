"""Figure of the modeled speed-up and efficiency of training on many machines."""

from collections.abc import Sequence
from pathlib import Path

from minicaps.plotting.canvas import BLUE, INK, ORANGE, new_figure, save


def speedups(
    path: str | Path, models: Sequence[dict], networks: Sequence[str], batch: int, notes: str
) -> None:
    """Draw strong and weak scaling, with one row for each network that is trained.

    models: of `minicaps.bench.scaling.model`. networks: names of the connections between machines,
    at most two. notes: assumptions, printed above the panels.
    """
    figure = new_figure(9, 0.9 + 3.1 * len(models))
    figure.suptitle(notes, color=INK, fontsize=9)
    axes = figure.subplots(len(models), 2, squeeze=False)
    for row, model in enumerate(models):
        strong, weak = axes[row]
        for network, colour in zip(networks, (BLUE, ORANGE), strict=False):
            rows = [one for one in model["rows"] if one["network"] == network]
            counts = [one["ranks"] for one in rows]
            for ending, style, word in (("_hidden", "o-", "hidden"), ("", "s:", "after")):
                look = {"color": colour, "markersize": 3, "label": f"{network}, sum {word}"}
                gains = [rows[0]["strong"] / one["strong" + ending] for one in rows]
                strong.plot(counts, gains, style, **look)
                shares = [100 * rows[0]["weak"] / one["weak" + ending] for one in rows]
                weak.plot(counts, shares, style, **look)
        strong.plot(counts, counts, color=INK, linewidth=0.8, label="no costs")
        strong.set(title=f"{model['preset']}, {batch} images in all", ylabel="speed-up")
        strong.set_yscale("log", base=2)
        strong.set_ylim(0.25, 256)
        weak.set(title=f"{model['preset']}, {batch} images per machine", ylabel="efficiency, %")
        weak.set_ylim(0, 105)
        for panel in (strong, weak):
            panel.set_xscale("log", base=2)
            panel.set_xticks(counts, [f"{n:,}" for n in counts], fontsize=8, rotation=45)
            panel.grid(alpha=0.3)
        strong.yaxis.set_major_formatter("{x:g}")
    axes[-1, 0].set_xlabel("machines")
    axes[-1, 1].set_xlabel("machines")
    axes[0, 1].legend(frameon=False, fontsize=8)
    save(figure, path)
