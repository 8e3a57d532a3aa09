"""Colors and files shared by all figures.

Matplotlib is imported only when a figure is drawn.
"""

import io

import numpy as np

from minicaps.storage import replacing

INK = "#444444"
DPI = 120  # pixels per inch
# Okabe and Ito's colors, distinct to color-blind readers, in the order of the lessons' figures.
# Figures that compare networks draw CapsNets in BLUE, CNNs in ORANGE and matrix capsules in GREEN.
BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"
PINK, AMBER, SKY = "#CC79A7", "#E69F00", "#56B4E9"


def new_figure(width, height):
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save(figure, path, foot=""):
    """Write a figure to a PNG file.

    foot: line of text for a strip below the whole figure.
    """
    with replacing(path) as file:
        if foot:
            _with_foot(figure, foot).save(file, "png", dpi=(DPI, DPI))
        else:
            figure.savefig(file, format="png", dpi=DPI, facecolor="white")


def _with_foot(figure, foot):
    """Return the figure as a Pillow image with a strip of text below it.

    The strip is drawn separately because legends may overlap any text inside the figure.
    """
    from PIL import Image

    strip = new_figure(figure.get_figwidth(), 0.35)
    strip.text(0.5, 0.5, foot, color=ORANGE, ha="center", va="center")
    rows = []
    for part in (figure, strip):
        part.savefig(pixels := io.BytesIO(), format="rgba", dpi=DPI, facecolor="white")
        width = round(part.get_figwidth() * DPI)
        rows.append(np.frombuffer(pixels.getvalue(), np.uint8).reshape(-1, width, 4))
    return Image.fromarray(np.concatenate(rows))


def channels_last(picture):
    """Convert an image (C, H, W) to (H, W, 3) if C is 3, otherwise to the channel mean (H, W)."""
    if len(picture) == 3:
        return np.moveaxis(picture, 0, -1)
    return picture.mean(axis=0)
