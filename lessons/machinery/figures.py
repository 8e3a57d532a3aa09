"""Record figures, and tell whether two of them show the same content.

Pixels differ between versions of Matplotlib, so each PNG carries a summary of its content: the
texts, and the shape, mean, standard deviation, first and last value of the data of every artist. On
a logarithmic axis the logarithm is summarized, because that is what the eye sees.
"""

import io
import json
from dataclasses import dataclass

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib import collections, image, lines, patches, quiver, spines
from PIL import Image

KEY = "minicaps figure"
TOLERANCE = 0.01  # relative to the spread of the data; smaller differences are invisible


@dataclass
class Picture:
    """A figure: its PNG bytes, the summary stored in them, and its stepper (steppers.py) if any."""

    png: bytes
    summary: list
    stepper: tuple | None


def take_figures():
    """Close all open figures and return a Picture of each."""
    taken = []
    for number in plt.get_fignums():
        figure = plt.figure(number)
        summary, png = summarise(figure), io.BytesIO()
        figure.savefig(png, format="png", metadata={KEY: json.dumps(summary)})
        taken.append(Picture(png.getvalue(), summary, getattr(figure, "stepper", None)))
        plt.close(figure)
    return taken


def read_summary(path):
    """Return the summary stored in a PNG, or None if it has none or is damaged."""
    try:
        with Image.open(path) as picture:
            stored = getattr(picture, "text", {}).get(KEY)
        return stored and json.loads(stored)
    except (OSError, SyntaxError, ValueError):  # Pillow raises SyntaxError for broken chunks
        return None


def summarise(figure):
    """Summarize a figure: for each axes its texts, and one entry per array drawn."""
    summary = []
    for axes in figure.axes:
        words = [axes.get_title(), axes.get_xlabel(), axes.get_ylabel()]
        words += [label.get_text() for label in axes.texts]
        if axes.get_legend():
            words += [label.get_text() for label in axes.get_legend().get_texts()]
        drawn = []
        for artist in axes.get_children():
            if artist is axes.patch or isinstance(artist, spines.Spine):
                continue
            for name, values in _arrays(artist):
                drawn.append([f"{type(artist).__name__} {name}", *_describe(values, axes, name)])
        summary.append({"words": [word for word in words if word], "drawn": drawn})
    return summary


def _arrays(artist):
    """Return the name and values of each array that an artist shows; x and y are coordinates."""
    if isinstance(artist, lines.Line2D):
        x, y = np.asarray(artist.get_xydata(), float).T
        return [("x", x), ("y", y)]
    if isinstance(artist, image.AxesImage):
        return [("values", artist.get_array()), ("extent", artist.get_extent())]
    if isinstance(artist, patches.Patch):
        x, y = artist.get_patch_transform().transform(artist.get_path().vertices).T
        return [("x", x), ("y", y)]
    if isinstance(artist, quiver.Quiver):
        return [("x", artist.X), ("y", artist.Y), ("u", artist.U), ("v", artist.V)]
    if isinstance(artist, collections.Collection):
        paths = [path.vertices for path in artist.get_paths()]
        found = [("paths", np.concatenate(paths))] if paths else []
        x, y = np.asarray(artist.get_offsets(), float).reshape(-1, 2).T
        found += [("x", x), ("y", y)]
        return found if artist.get_array() is None else [*found, ("values", artist.get_array())]
    return []


def _describe(values, axes, name):
    """Return the shape, and the mean, std, first and last of the finite values, to six digits."""
    values = np.ma.filled(np.ma.asarray(values, float), np.nan)
    if {"x": axes.get_xscale(), "y": axes.get_yscale()}.get(name) == "log":
        values = np.log10(np.where(values > 0, values, np.nan))
    shape, values = list(values.shape), values[np.isfinite(values)]
    if not values.size:
        return shape, []
    numbers = values.mean(), values.std(), values[0], values[-1]
    return shape, [float(f"{number:.6g}") for number in numbers]


def compare(old, new):
    """Return a list of sentences that describe how the summary `new` differs from `old`."""
    if old is None:
        return ["the PNG carries no summary, so it was not written by `python -m lessons update`"]
    if len(old) != len(new):
        return [f"the page's figure has {len(old)} axes, but the block draws {len(new)}"]
    found = []
    for number, (before, now) in enumerate(zip(old, new, strict=True), 1):
        where = f"axes {number}: " if len(new) > 1 else ""
        if before["words"] != now["words"]:
            found.append(f"{where}texts were {before['words']}, now {now['words']}")
        kinds = [[entry[:2] for entry in side["drawn"]] for side in (before, now)]
        if kinds[0] != kinds[1]:
            found.append(f"{where}artists were {kinds[0]}, now {kinds[1]}")
            continue
        for (kind, _, was), (_, _, got) in zip(before["drawn"], now["drawn"], strict=True):
            if not _close(was, got):
                found.append(f"{where}{kind}: mean, std, first, last were {was}, now {got}")
    return found


def _close(was, got):
    if len(was) != len(got):
        return False
    if not was:
        return True
    mean, spread = abs(was[0]), was[1]
    return bool(np.allclose(was, got, rtol=0, atol=TOLERANCE * spread + 1e-4 * mean + 1e-12))
