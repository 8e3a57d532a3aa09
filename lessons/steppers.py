"""Records steppers: figures with sliders for the web page. GitHub shows a picture in their place.

A page sets `figure.stepper = (draw, {"name of a slider": [its values], ...})` before `plt.show()`,
and `draw(*values)` draws a figure of its own. It is called for every combination, and what it draws
becomes SVG elements, in points. The JSON beside the picture has

    size      width and height
    sliders   [name, [value, ...]] of each
    elements  [tag, attributes, text], each once
    frames    for each combination, the last slider running fastest, the numbers of its elements
"""

import base64
import io
import itertools
import json
import re

import matplotlib.pyplot as plt
import numpy as np
from matplotlib import collections, image, lines, patches
from matplotlib.axis import Axis
from matplotlib.colors import to_hex, to_rgba
from matplotlib.legend import Legend
from matplotlib.markers import MarkerStyle
from matplotlib.text import Text
from PIL import Image

INKS = ("#7f7f7f", "#808080")  # the style's and "0.5"; the page has an ink for light, one for dark
STILL = {  # axes stay where they are, whatever their labels say; laying out takes most of the time
    "figure.constrained_layout.use": False,
    "figure.subplot.left": 0.14,
    "figure.subplot.right": 0.97,
    "figure.subplot.bottom": 0.14,
    "figure.subplot.top": 0.92,
}
DASHES = {"--": "6 3", ":": "1.5 2.5", "-.": "6 2 1 2"}
NUMBER = re.compile(r"-?\d+\.?\d*")


class StepperError(Exception):
    """A stepper draws what cannot be shown: the message says what."""


def record(draw, sliders):
    """The stepper as JSON text."""
    elements, frames = {}, []
    for values in itertools.product(*sliders.values()):
        with plt.rc_context(STILL):
            draw(*values)
        figure = plt.gcf()
        drawn = [json.dumps(element, ensure_ascii=False) for element in _figure(figure)]
        frames.append([elements.setdefault(element, len(elements)) for element in drawn])
        size = [round(72 * inches) for inches in figure.get_size_inches()]
        plt.close(figure)
    names = [[name, [str(value) for value in values]] for name, values in sliders.items()]
    parts = [f'"size": {size}', f'"sliders": {json.dumps(names, ensure_ascii=False)}']
    for name, rows in {"elements": elements, "frames": map(str, frames)}.items():
        parts.append(f'"{name}": [\n' + ",\n".join(rows) + "\n]")
    return "{" + ",\n".join(parts) + "}\n"


# ---- from Matplotlib to SVG


def _figure(figure):
    """The SVG elements of a figure, from back to front."""
    figure.draw_without_rendering()
    scale = 72 / figure.dpi
    pen = _Pen(figure.bbox.height * scale, scale)
    artists = [*figure.texts, *([figure._suptitle] if figure._suptitle else [])]
    for axes in figure.axes:
        inside = [artist for artist in axes.get_children() if artist is not axes.patch]
        yield from pen.draw_all(sorted(inside, key=lambda artist: artist.zorder))
    yield from pen.draw_all(artists)


class _Pen:
    """Turns artists into elements. In SVG, y runs down; lengths here are points."""

    def __init__(self, height, scale):
        self.height, self.scale = height, scale

    def draw_all(self, artists):
        for artist in artists:
            if artist.get_visible():
                yield from self.draw(artist)

    def draw(self, artist):
        if isinstance(artist, lines.Line2D):
            return self.line(artist)
        if isinstance(artist, Text):
            return self.text(artist)
        if isinstance(artist, patches.Patch):
            return self.patch(artist)
        if isinstance(artist, collections.PathCollection):
            return self.scatter(artist)
        if isinstance(artist, image.AxesImage):
            return self.image(artist)
        if isinstance(artist, Axis):
            return self.draw_all(_parts_of_axis(artist))
        if isinstance(artist, Legend):
            return self.draw_all([*artist.legend_handles, *artist.get_texts()])
        raise StepperError(f"a stepper cannot show a {type(artist).__name__}: use plot or scatter")

    def points(self, pixels):
        pixels = np.asarray(pixels, float).reshape(-1, 2) * self.scale
        return np.round(np.stack([pixels[:, 0], self.height - pixels[:, 1]], axis=1), 1)

    def path(self, polygons):
        corners = (" ".join(f"{x:g},{y:g}" for x, y in self.points(each)) for each in polygons)
        return "".join(f"M{piece}" for piece in corners)

    def line(self, line):
        path, transform = line.get_path(), line.get_transform()
        box = line.get_clip_box() if line.get_clip_on() else None
        if line.get_linestyle() != "None" and len(path):
            clip = box and (box.x0 - 1, box.y0 - 1, box.x1 + 1, box.y1 + 1)
            inside = path.cleaned(transform, remove_nans=True, clip=clip, simplify=False)
            style = _colour("stroke", line.get_color(), line.get_alpha())
            style |= {"fill": "none", "stroke-width": _short(line.get_linewidth())}
            if dash := DASHES.get(line.get_linestyle()):
                style["stroke-dasharray"] = dash
            polygons = inside.to_polygons(closed_only=False)
            if polygons:
                yield ["path", {"d": self.path(polygons), **style}, ""]
        marker = MarkerStyle(line.get_marker())
        if marker:
            shape = marker.get_path().transformed(marker.get_transform())
            places = transform.transform(line.get_xydata())
            face, width = line.get_markerfacecolor(), line.get_markeredgewidth()
            style = _colour("fill", face, line.get_alpha())
            style |= _edge(line.get_markeredgecolor(), width, line.get_alpha())
            yield from self.marks(places, shape, line.get_markersize(), style, box)

    def marks(self, places, shape, size, style, box):
        """A circle or a polygon, of a size in points, at each place in the box."""
        for (x, y), place in zip(self.points(places), places, strict=True):
            if box and not box.padded(1).contains(*place):
                continue
            if shape.codes is not None and shape.CURVE4 in shape.codes:
                circle = {"cx": f"{x:g}", "cy": f"{y:g}", "r": _short(size * shape.vertices.max())}
                yield ["circle", circle | style, ""]
            else:
                polygons = shape.to_polygons(closed_only=False)
                moved = [place + corners * size / self.scale for corners in polygons]
                yield ["path", {"d": self.path(moved), **style}, ""]

    def patch(self, patch):
        outline = patch.get_transform().transform_path(patch.get_path())
        polygons = outline.to_polygons(closed_only=False)
        style = _colour("fill", patch.get_facecolor()) if patch.get_fill() else {"fill": "none"}
        style |= _edge(patch.get_edgecolor(), patch.get_linewidth())
        if dash := DASHES.get(patch.get_linestyle()):
            style["stroke-dasharray"] = dash
        yield ["path", {"d": self.path(polygons), **style}, ""]

    def scatter(self, dots):
        places = dots.get_offset_transform().transform(dots.get_offsets())
        columns = dots.get_paths(), dots.get_sizes(), dots.get_facecolors()
        edges, widths = dots.get_edgecolors(), dots.get_linewidths()
        box = dots.get_clip_box() if dots.get_clip_on() else None
        for number, place in enumerate(places):
            shape, size, face = (column[number % len(column)] for column in columns)
            style = _colour("fill", face)
            if len(edges):
                width = widths[number % len(widths)]
                style |= _edge(edges[number % len(edges)], width)
            yield from self.marks([place], shape, size**0.5, style, box)

    def image(self, picture):
        rgba = picture.to_rgba(picture.get_array(), bytes=True)
        if picture.origin == "lower":
            rgba = rgba[::-1]
        png = io.BytesIO()
        Image.fromarray(rgba).save(png, "png")
        box = picture.get_window_extent()
        (x, y), (right, bottom) = self.points([(box.x0, box.y1), (box.x1, box.y0)])
        place = {"x": x, "y": y, "width": right - x, "height": bottom - y}
        place = {name: _short(value) for name, value in place.items()}
        link = "data:image/png;base64," + base64.b64encode(png.getvalue()).decode()
        yield ["image", place | {"preserveAspectRatio": "none", "href": link}, ""]

    def text(self, text):
        if not text.get_text():
            return
        box = text.get_window_extent()
        [(x, y)] = self.points([(box.x0 + box.width / 2, box.y0 + box.height / 2)])
        place = {"x": f"{x:g}", "y": f"{y:g}", "font-size": _short(text.get_fontsize())}
        if text.get_rotation():
            place["transform"] = f"rotate({-text.get_rotation():g} {x:g} {y:g})"
        yield ["text", place | _colour("fill", text.get_color()), text.get_text()]


def _parts_of_axis(axis):
    """The label, and of each tick in view its label and its mark."""
    low, high = sorted(axis.get_view_interval())
    for tick in axis.get_major_ticks():
        if low <= tick.get_loc() <= high:
            yield from (tick.label1, tick.tick1line)
    yield axis.label


def _colour(name, colour, alpha=None):
    """The attributes `name` and, unless opaque, its opacity."""
    *_, opacity = to_rgba(colour, alpha)
    if opacity == 0:
        return {name: "none"}
    shown = to_hex(colour)
    style = {name: "currentColor" if shown in INKS else shown}
    return style if opacity == 1 else style | {f"{name}-opacity": f"{opacity:.2f}"}


def _edge(colour, width, alpha=None):
    return _colour("stroke", colour, alpha) | {"stroke-width": _short(width)} if width else {}


def _short(number):
    return f"{float(number):.1f}".removesuffix(".0")


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
            return [f"frame {number} had {len(before)} elements, now {len(now)}"]
        for was, got in zip(before, now, strict=True):
            if not _close(was, got):
                return [f"frame {number} had {was}, now {got}"]
    return []


def _frames(stepper):
    return [[stepper["elements"][k] for k in frame] for frame in stepper["frames"]]


def _close(was, got):
    """Same tag, same text, and attributes that differ by less than the eye can see."""
    (tag, before, words), (other, now, said) = was, got
    alike = (tag, words, list(before)) == (other, said, list(now))
    return alike and all(_looks_like(name, before[name], now[name]) for name in before)


def _looks_like(name, was, got):
    if was == got or "currentColor" in (was, got) or "none" in (was, got):
        return was == got
    if name in ("fill", "stroke"):
        return bool(np.allclose(to_rgba(was), to_rgba(got), rtol=0, atol=0.03))
    if name == "href":
        return bool(np.allclose(_pixels(was), _pixels(got), rtol=0, atol=8))
    numbers = [[float(found) for found in NUMBER.findall(value)] for value in (was, got)]
    tolerance = 0.03 if name.endswith("opacity") else 1.5  # points: layouts move between versions
    same_form = NUMBER.sub("", was) == NUMBER.sub("", got)
    return same_form and bool(np.allclose(*numbers, rtol=0, atol=tolerance))


def _pixels(link):
    with Image.open(io.BytesIO(base64.b64decode(link.partition(",")[2]))) as picture:
        return np.asarray(picture, int)
