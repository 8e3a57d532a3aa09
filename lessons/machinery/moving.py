"""The figure that moves on the first page: three centers find three crowds of votes.

    python -m lessons.machinery.moving    # writes lessons/figures/00_crowds.svg

The votes are those of section 9.1, and every frame is an iteration of soft K-means.
"""

import numpy as np

from lessons.machinery.page import LESSONS
from minicaps.clustering import soft_kmeans
from minicaps.explore.playground.presets import wholes

TARGET = LESSONS / "figures" / "00_crowds.svg"
TITLE = "Three centers start in one crowd of votes, and each ends in a crowd of its own"
COLORS = np.array([[0, 114, 178], [213, 94, 0], [0, 158, 115]])  # Okabe and Ito, RGB
SHAPES = "M0-12 12 10H-12Z", "M-10-10H10V10H-10Z", "M0-14 14 0 0 14-14 0Z"  # as in lesson 9
START = [27, 30, 26]  # the votes where the centers start: all of the largest crowd
ITERATIONS, STILL = 15, 5  # frames that move, then frames of rest
SECONDS, TIMES = 8, 3
WIDTH, HEIGHT, SCALE = 640, 280, 44  # pixels; pixels per unit of the votes


def frames(u):
    """Return the centers (T, 3, 2) and the shares (T, I, 3) of all frames."""
    rounds = [*range(1, ITERATIONS + 1), *[ITERATIONS] * STILL]
    options = {"inverse_temperature": 1.0, "start": u[START]}
    found = [soft_kmeans(u, 3, iterations=r, **options) for r in rounds]
    centers = [u[START], *(f.centres for f in found)]
    shares = [found[0].responsibilities, *(f.responsibilities for f in found)]
    return np.stack(centers), np.stack(shares)


def figure():
    """Return the animated figure as the text of an SVG file."""
    u = wholes()
    centers, shares = frames(u)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{TITLE}</title>",
    ]
    for at, share in zip(_pixels(u), shares.swapaxes(0, 1), strict=True):
        colors = [_color(mix) for mix in share @ COLORS]
        dot = f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="5" fill="{colors[-1]}">'
        lines.append(dot + _animated("animate", "fill", colors) + "</circle>")
    for shape, color, path in zip(SHAPES, COLORS, centers.swapaxes(0, 1), strict=True):
        places = [f"{x:.1f} {y:.1f}" for x, y in _pixels(path)]
        look = f'd="{shape}" fill="{_color(color)}" fill-opacity="0.85" stroke="#888"'
        still = f'<path {look} stroke-width="2.5" transform="translate({places[-1]})">'
        move = _animated("animateTransform", "transform", places, ' type="translate"')
        lines.append(still + move + "</path>")
    return "\n".join([*lines, "</svg>", ""])


def _pixels(points):
    return np.array([WIDTH / 2, 0.6 * HEIGHT]) + SCALE * points * [1, -1]


def _color(rgb):
    return "#{:02x}{:02x}{:02x}".format(*np.rint(rgb).astype(int))


def _animated(tag, attribute, values, more=""):
    """Let an attribute run through values and stay at the last."""
    return (
        f'<{tag} attributeName="{attribute}"{more} dur="{SECONDS}s" repeatCount="{TIMES}"'
        f' fill="freeze" values="{";".join(values)}"/>'
    )


if __name__ == "__main__":
    TARGET.write_text(figure(), "utf-8")
    print(TARGET)
