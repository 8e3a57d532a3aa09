"""Record steppers: figures with sliders for the web page. GitHub shows a static figure instead.

A page sets `figure.stepper = (draw, {"name of a slider": [its values], ...})` before `plt.show()`,
where `draw(*values)` draws a new figure. It is called for every combination of values, and
Matplotlib writes each figure as SVG. Because the frames have most of the SVG in common, the JSON
file beside the PNG holds

    size     width and height, in points
    sliders  [name, [value, ...]] of each slider
    pieces   the distinct pieces of SVG, each an opening tag and the text up to the next tag
    frames   for each combination, with the last slider varying fastest, the indices of its pieces
"""

import base64
import io
import itertools
import json
import re

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

STILL = {  # axes stay in place whatever their labels; automatic layout would take most of the time
    "figure.constrained_layout.use": False,
    "figure.subplot.left": 0.14,
    "figure.subplot.right": 0.97,
    "figure.subplot.bottom": 0.14,
    "figure.subplot.top": 0.92,
    "image.interpolation": "none",  # an image keeps its own pixels; the browser enlarges them
    "path.simplify": False,  # the vertices that it drops can depend on rounding errors
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "stepper",  # an id is a hash of its element, so two elements never share one
}
INKS = "#7f7f7f|#808080"  # the style's gray and "0.5"; the page sets its own ink, light or dark
VALUE = re.compile(
    r'(?:id="|"#|\(#)\w+'  # an id or a reference to it
    r'|base64,(?P<image>[^"]+)'
    r"|#(?P<colour>[0-9a-f]{6})"
    r"|(?:opacity|width): (?P<style>[\d.]+)"
    r"|(?P<length>-?\d+\.?\d*)"
)


def record(draw, sliders):
    """Return the stepper as JSON text."""
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
    """Split the SVG of a figure into pieces."""
    written = io.StringIO()
    figure.savefig(written, format="svg")
    text = re.sub(r"\s+", " ", written.getvalue())
    inside = text[text.index('<g id="figure') : text.rindex("</svg>")]
    return [_tidy(piece) for piece in re.split(r"(?=<\w)", inside) if piece]


def _tidy(piece):
    """Shorten a piece, and make it the same for every version of Matplotlib."""
    tag, end, rest = piece.partition(">")
    tag = re.sub('^<g id="[^"]*"', "<g", tag)  # numbers of artists would make frames differ
    tag = re.sub(INKS, "currentColor", tag)
    tag = re.sub(r'font: (\S+) [^;"]*', r"font-size: \1", tag)  # as in Matplotlib 3.8
    tag = re.sub(r'font-family: [^;"]*(; )?', "", tag)  # the page chooses the font
    tag = re.sub(r'(?<=style=")[^"]*', lambda style: "; ".join(sorted(style[0].split("; "))), tag)
    return re.sub(r"-?\d+\.\d+", lambda number: f"{round(float(number[0]), 2):g}", tag) + end + rest


# ---- comparison of two steppers


def compare(old, new):
    """Return a list of at most one sentence on how the stepper `new` differs from `old`."""
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
    """Tell whether texts and tags agree up to differences in values that the eye cannot see."""
    (tag, _, rest), (other, _, said) = was.partition(">"), got.partition(">")
    if (VALUE.sub("", tag), rest) != (VALUE.sub("", other), said):
        return False
    before, now = ([n for v in VALUE.finditer(each) for n in _visible(v)] for each in (tag, other))
    return len(before) == len(now) and bool(np.allclose(before, now, rtol=0, atol=1))


def _visible(value):
    """Return the numbers in a value, in units of the smallest difference that the eye can see."""
    kind = value.lastgroup
    if kind == "image":
        with Image.open(io.BytesIO(base64.b64decode(value[kind]))) as picture:
            return np.asarray(picture, float).ravel() / 8
    if kind == "colour":
        return [channel / 8 for channel in bytes.fromhex(value[kind])]
    unit = {"style": 0.05, "length": 1.5}  # points; layouts shift between versions of Matplotlib
    return [float(value[kind]) / unit[kind]] if kind else []
