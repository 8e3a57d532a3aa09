"""Records steppers: figures with sliders for the web page. GitHub shows a picture in their place.

A page sets `figure.stepper = (draw, {"name of a slider": [its values], ...})` before `plt.show()`,
and `draw(*values)` draws a figure of its own. It is called for every combination, and Matplotlib
writes each as SVG. Frames have most of it in common, so the JSON beside the picture has

    size     width and height, in points
    sliders  [name, [value, ...]] of each
    pieces   of SVG, each once: an opening tag, and what follows up to the next
    frames   for each combination, the last slider running fastest, the numbers of its pieces
"""

import base64
import io
import itertools
import json
import re

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

STILL = {  # axes stay where they are, whatever their labels say; laying out takes most of the time
    "figure.constrained_layout.use": False,
    "figure.subplot.left": 0.14,
    "figure.subplot.right": 0.97,
    "figure.subplot.bottom": 0.14,
    "figure.subplot.top": 0.92,
    "image.interpolation": "none",  # an image keeps its own pixels: the browser enlarges them
    "path.simplify": False,  # which corners of a line it leaves out can hang on rounding noise
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "stepper",  # an id is a hash of what it names: never two things with one id
}
INKS = "#7f7f7f|#808080"  # the style's and "0.5"; the page has an ink for light, one for dark
VALUE = re.compile(
    r'(?:id="|"#|\(#)\w+'  # an id, or where it is used
    r'|base64,(?P<image>[^"]+)'
    r"|#(?P<colour>[0-9a-f]{6})"
    r"|(?:opacity|width): (?P<style>[\d.]+)"
    r"|(?P<length>-?\d+\.?\d*)"
)


def record(draw, sliders):
    """The stepper as JSON text."""
    pieces, frames = {}, []
    for values in itertools.product(*sliders.values()):
        with plt.rc_context(STILL):
            draw(*values)
            figure = plt.gcf()
            drawn = _pieces(figure)
        frames.append([pieces.setdefault(piece, len(pieces)) for piece in drawn])
        size = [round(72 * inches) for inches in figure.get_size_inches()]
        plt.close(figure)
    names = [[name, [str(value) for value in values]] for name, values in sliders.items()]
    parts = [f'"size": {size}', f'"sliders": {json.dumps(names, ensure_ascii=False)}']
    lines = [json.dumps(piece, ensure_ascii=False) for piece in pieces]
    for name, rows in {"pieces": lines, "frames": map(str, frames)}.items():
        parts.append(f'"{name}": [\n' + ",\n".join(rows) + "\n]")
    return "{" + ",\n".join(parts) + "}\n"


def _pieces(figure):
    """The pieces of SVG that a figure consists of."""
    written = io.StringIO()
    figure.savefig(written, format="svg")
    text = re.sub(r"\s+", " ", written.getvalue())
    inside = text[text.index('<g id="figure') : text.rindex("</svg>")]
    return [_tidy(piece) for piece in re.split(r"(?=<\w)", inside) if piece]


def _tidy(piece):
    """A piece in few letters, the same with each version of Matplotlib."""
    tag, end, rest = piece.partition(">")
    tag = re.sub('^<g id="[^"]*"', "<g", tag)  # numbers of artists: frames would differ
    tag = re.sub(INKS, "currentColor", tag)
    tag = re.sub(r'font: (\S+) [^;"]*', r"font-size: \1", tag)  # Matplotlib 3.8 has size and family
    tag = re.sub(r'font-family: [^;"]*(; )?', "", tag)  # letters are the page's
    tag = re.sub(r'(?<=style=")[^"]*', lambda style: "; ".join(sorted(style[0].split("; "))), tag)
    return re.sub(r"-?\d+\.\d+", lambda number: f"{round(float(number[0]), 2):g}", tag) + end + rest


# ---- whether two of them show the same


def compare(old, new):
    """Sentences that tell how the stepper `new` differs from `old`; none where they agree."""
    new = json.loads(new)
    try:
        old = json.loads(old)
        sliders, frames = old["sliders"], _frames(old)
    except (ValueError, LookupError, TypeError) as error:
        return [f"the file is damaged: {error!r}"]
    if sliders != new["sliders"]:
        return [f"the sliders were {sliders}, now {new['sliders']}"]
    if len(frames) != len(new["frames"]):
        return [f"there were {len(frames)} frames, now {len(new['frames'])}"]
    for number, (before, now) in enumerate(zip(frames, _frames(new), strict=True), 1):
        if len(before) != len(now):
            return [f"frame {number} had {len(before)} pieces, now {len(now)}"]
        for was, got in zip(before, now, strict=True):
            if was != got and not _looks_like(was, got):
                return [f"frame {number} had {was}, now {got}"]
    return []


def _frames(stepper):
    return [[stepper["pieces"][k] for k in frame] for frame in stepper["frames"]]


def _looks_like(was, got):
    """Same text, and a tag of the same form, whose values differ by less than the eye can see."""
    (tag, _, rest), (other, _, said) = was.partition(">"), got.partition(">")
    if (VALUE.sub("", tag), rest) != (VALUE.sub("", other), said):
        return False
    before, now = ([n for v in VALUE.finditer(each) for n in _visible(v)] for each in (tag, other))
    return len(before) == len(now) and bool(np.allclose(before, now, rtol=0, atol=1))


def _visible(value):
    """The numbers of a value, in units that the eye can just tell apart."""
    kind = value.lastgroup
    if kind == "image":
        with Image.open(io.BytesIO(base64.b64decode(value[kind]))) as picture:
            return np.asarray(picture, float).ravel() / 8
    if kind == "colour":
        return [channel / 8 for channel in bytes.fromhex(value[kind])]
    unit = {"style": 0.05, "length": 1.5}  # points; layouts move between versions of Matplotlib
    return [float(value[kind]) / unit[kind]] if kind else []
