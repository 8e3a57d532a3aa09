"""What all figures share: colours, names, files. Matplotlib is imported when one is drawn."""

import functools

import numpy as np

from minicaps.checkpoint import replacing

INK = "#444444"
LONGEST = 24  # letters of a name
BLUE, ORANGE = "#0072B2", "#D55E00"  # told apart by colour-blind readers and in grey print


def new_figure(width, height):
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save(figure, path):
    with replacing(path) as file:
        figure.savefig(file, format="png", dpi=120, facecolor="white")


def names_as_they_are(draw):
    """Let a dollar sign in the name of a class begin no formula."""

    @functools.wraps(draw)
    def drawing(*args, **keywords):
        import matplotlib

        with matplotlib.rc_context({"text.parse_math": False}):
            return draw(*args, **keywords)

    return drawing


def short(text, most=LONGEST):
    """A text of at most so many letters: of a longer one, its start and its end."""
    return text if len(text) <= most else f"{text[: most - most // 3 - 1]}…{text[-(most // 3) :]}"


def channels_last(picture):
    """(C, H, W) -> (H, W) for one channel, (H, W, 3) for three; more are averaged."""
    if len(picture) == 3:
        return np.moveaxis(picture, 0, -1)
    return picture.mean(axis=0)
