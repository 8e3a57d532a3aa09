"""Print predictions as text, JSON or CSV."""

import csv
import json
import sys

from tqdm import tqdm

from minicaps.errors import escaped
from minicaps.models.multilabel import SEEN
from minicaps.storage import as_text

ALL, BEST = 10, 5  # all classes are printed up to ALL, and the BEST of more
BAR = 40  # characters in the bar of a score of 1


def text_printer(names, top):
    """Print a paragraph for each image."""
    count = top or (len(names) if len(names) <= ALL else BEST)

    def show(result):
        if "error" not in result:
            tqdm.write("\n".join(map(escaped, _report(result, count, told=top is None))))

    return show


def json_printer(names, top):
    """Print a JSON object for each image, in one line."""

    def show(result):
        if "error" not in result:
            result = result | {"scores": _best(result, top)}
        tqdm.write(json.dumps(result))

    return show


def csv_printer(names, top):
    """Print a table with one row per image and one column per class, as `storage.write_csv`."""
    writer, terminal = csv.writer(sys.stdout, lineterminator="\n"), sys.stdout.isatty()

    def write(cells):
        with tqdm.external_write_mode(sys.stdout):
            writer.writerow([escaped(cell) if terminal else cell for cell in map(as_text, cells)])

    def show(result):
        cells = [result.get(key) or "" for key in ("file", "answer", "seen", "doubt", "error")]
        scores = {} if "error" in result else _best(result, top)
        cells[2] = " + ".join(cells[2])
        write([*cells, *(f"{scores[name]:.6g}" if name in scores else "" for name in names)])

    write(["file", "answer", "seen", "doubt", "error", *names])
    return show


PRINTERS = {"text": text_printer, "json": json_printer, "csv": csv_printer}


def _best(result, top):
    return dict(list(result["scores"].items())[:top])


def headline_of(result):
    """Return the prediction in words."""
    if result["doubt"]:
        return f"unsure: {result['doubt']}; the best guess is {result['answer']}"
    return ", ".join(result["seen"]) or f"no class (no {result['score']} is above {SEEN})"


def _report(result, count, told):
    """Return the lines about an image, with the `count` best classes.

    told: whether to mention that classes are left out.
    """
    lines = [f"{result['file']}: {headline_of(result)}", f"  {_what_was_done(result)}"]
    scores = _best(result, count)
    width = max(map(len, scores))
    for name, value in scores.items():
        lines.append(f"  {name:{width}}  {value:.3f}  {'#' * round(BAR * value)}".rstrip())
    if told and (more := len(result["scores"]) - count) > 0:
        lines.append(f"  and {more} classes with lower scores (--top {more + count} prints all)")
    if result["figure"]:
        lines.append(f"  figure: {result['figure']}")
    return lines


def _what_was_done(result):
    """Describe in one line how the image file was converted to the input of the network."""
    (height, width), (channels, *size) = result["size"], result["shown"]
    steps = [f"{height}×{width} pixels, {'grayscale' if result['channels'] == 1 else 'color'}"]
    if result["blank"]:
        steps.append("uniform: nothing to see")
    if result["inverted"]:
        steps.append(f"inverted (the border was {result['border']})")
    if channels != result["channels"]:
        steps.append("reduced to one channel" if channels == 1 else "copied to all channels")
    if result["centred"]:
        steps.append("ink centered as in MNIST")
    if [height, width] != size:
        steps.append(f"fitted to {size[0]}×{size[1]}")
    return ", ".join(steps)
