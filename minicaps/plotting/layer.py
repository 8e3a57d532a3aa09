"""A diagram of a capsule layer: children, votes, couplings, weighted sums, parents."""

from collections.abc import Iterable
from typing import Any

from minicaps.plotting.canvas import BLUE

STAGES = "children", "votes", "couplings", "sums", "parents", "agreement"
# routing -> symbol and name of each stage, what turns one stage into the next, and the way back
LABELS = {
    "agreement": (
        ("$u_i$", "children"),
        (r"$\hat u_{j|i}$", "votes"),
        ("$c_{ij}$", "couplings"),
        ("$s_j$", "weighted\nsums"),
        ("$v_j$", "parents"),
        ("$W_{ij}$", "", r"$\Sigma_i$", "squash"),
        "agreement: votes like $v_j$ count more",
    ),
    "em": (
        ("$P_i, a_i$", "children"),
        ("$V_{ij}$", "votes"),
        ("$R_{ij}$", "responsi-\nbilities"),
        (r"$\mu_j, \sigma_j$", "means,\ndeviations"),
        ("$a_j$", "activations"),
        ("$W_{ij}$", "", "M step", "cost"),
        "E step: likely votes count more",
    ),
}
HEIGHT, WIDTH, GAP = 0.95, 1.2, 2.12
GRAY = "#7f7f7f"  # visible on light and dark pages


def layer(axes: Any, routing: str = "agreement", highlight: Iterable[str] = STAGES) -> None:
    """Draw a capsule layer on Matplotlib axes: boxes from children to parents, and the way back.

    routing: "agreement" or "em", which choose the symbols of Sabour et al. 2017 or Hinton et al.
    2018. highlight: the stages to draw filled, with thick arrows between them, some of `STAGES`;
    the others are outlines. The figure should be about 2.6 times as wide as high.
    """
    if unknown := {*highlight} - {*STAGES}:
        raise ValueError(f"unknown stages {sorted(unknown)}: choose from {', '.join(STAGES)}")
    if routing not in LABELS:
        raise ValueError(f"unknown routing {routing!r}: choose from {', '.join(LABELS)}")
    *stages, between, back = LABELS[routing]
    chosen = [stage in highlight for stage in STAGES]
    for k, (symbol, name) in enumerate(stages):
        _box(axes, GAP * k, symbol, chosen[k], rounded=k == 2)
        _write(axes, GAP * k, -0.62, name, chosen[k], ha="center", va="top")
    for k, label in enumerate(between):
        ends = (GAP * k + WIDTH / 2, 0), (GAP * (k + 1) - WIDTH / 2, 0)
        both = chosen[k] and chosen[k + 1]
        _arrow(axes, *ends, both)
        _write(axes, GAP * (k + 0.5), 0.14, label, False, ha="center")
    _arrow(axes, (GAP * 4, HEIGHT / 2), (GAP * 2, HEIGHT / 2), chosen[5], bend=0.25)
    _write(axes, GAP * 4 + WIDTH / 2, 1.35, back, chosen[5], ha="right")
    axes.set(xlim=(-0.8, GAP * 4 + 0.8), ylim=(-1.5, 1.75), aspect="equal")
    axes.axis("off")


def _write(axes, x, y, text, chosen, **place):
    weight = "bold" if chosen else "normal"
    axes.text(x, y, text, fontsize=11, color=GRAY, fontweight=weight, **place)


def _box(axes, x, symbol, chosen, *, rounded):
    from matplotlib.patches import FancyBboxPatch

    axes.add_patch(
        FancyBboxPatch(
            (x - WIDTH / 2, -HEIGHT / 2),
            WIDTH,
            HEIGHT,
            "round,pad=0,rounding_size=0.4" if rounded else "square,pad=0",
            facecolor=BLUE if chosen else "none",
            edgecolor=BLUE if chosen else GRAY,
            linewidth=1.4,
        )
    )
    ink = "white" if chosen else GRAY
    axes.text(x, 0, symbol, ha="center", va="center", fontsize=15, color=ink)


def _arrow(axes, start, end, chosen, bend=0.0):
    from matplotlib.patches import FancyArrowPatch

    axes.add_patch(
        FancyArrowPatch(
            start,
            end,
            connectionstyle=f"arc3,rad={bend}",
            arrowstyle="-|>",
            mutation_scale=14,
            shrinkA=0,
            shrinkB=0,
            color=BLUE if chosen else GRAY,
            linewidth=3.2 if chosen else 1.2,
        )
    )
