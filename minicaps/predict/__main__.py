"""`python -m minicaps.predict`: classify image files with a trained network."""

import argparse
import os
import sys
from functools import partial
from pathlib import Path

import numpy as np
from tqdm import tqdm

from minicaps import plotting, ranks
from minicaps.backend import choose_device
from minicaps.cli.command import (
    add_device,
    fail,
    guarded,
    number,
    parser_for_run,
    start,
)
from minicaps.data.finding import find_images
from minicaps.data.images import file_names, read_picture
from minicaps.data.ink import CHOICES
from minicaps.errors import DataError
from minicaps.models import inspection
from minicaps.models.base import EVALUATION_BATCH
from minicaps.predict.doubt import limit_of, seen_classes
from minicaps.predict.printing import ALL, BEST, PRINTERS, headline_of
from minicaps.runs.run import open_run
from minicaps.storage import results_folder

NAME = "minicaps.predict"
FIGURES = 20  # most images for which figures are drawn without being requested
NO_MEMORY = "there is not enough memory for this image: make it smaller"
ABOUT = """\
Classify images of any size, gray or color, with a trained network: print the
lengths of the class capsules, and draw a figure for each image with these
lengths, the parts that vote for the predicted class, and the reconstruction
from its capsule.
"""
EXAMPLES = """examples (the first two lines create a run, in about a minute, and images):
  python -m minicaps.train --out runs/first
  python -m minicaps.data export strokes digits
  python -m minicaps.predict runs/first digits
  python -m minicaps.predict runs/first photo.jpg --invert yes
  python -m minicaps.predict runs/first digits --format csv > answers.csv
  find . -name "*.png" | python -m minicaps.predict runs/first - --top 1

The exit code is 0 for success, 1 if an image could not be used (the remaining
images are still classified), and 2 for wrong usage.
"""


def main(arguments=None):
    """Run the command and return the exit code.

    The exit code is 0 on success, 1 on failure, 2 on usage errors, and 130 on Ctrl-C.
    """
    parser = _parser()
    options = parser.parse_intermixed_args(arguments)
    if options.figures is False and options.out:
        parser.error("--out has no effect with --no-figures: leave one of them out")
    # Images that need too much memory are reported one by one
    no_memory = "close other programs, or use a network for smaller images"
    return guarded(NAME, partial(_run, options), no_memory=no_memory)


def _parser():
    parser = parser_for_run(NAME, ABOUT, EXAMPLES)
    text = (
        "image files, or folders, which are searched with their subfolders; - reads an image, or"
        " the names of files and folders, one per line, from standard input"
    )
    parser.add_argument("pictures", metavar="IMAGE", nargs="+", help=text)
    group = parser.add_argument_group("how images are read")
    text = (
        "invert light and dark; auto: only if the image is dark on light and the training images"
        " were light on dark, or vice versa (default: auto)"
    )
    group.add_argument("--invert", choices=["auto", "yes", "no"], default="auto", help=text)
    text = (
        "scale and center the ink as in MNIST; auto: only if the network was trained on mnist"
        " or strokes and the image has a different size (default: auto)"
    )
    group.add_argument("--centre", choices=["auto", "yes", "no"], default="auto", help=text)
    _add_output(parser.add_argument_group("what is printed and drawn"))
    group = parser.add_argument_group("where to compute")
    add_device(group)
    return parser


def _add_output(group):
    text = (
        "folder for the figures (default: RUN/predictions, replacing figures of the same name; of"
    )
    text += " a file, FILE-predictions beside it)"
    group.add_argument("--out", metavar="FOLDER", type=Path, help=text)
    text = f"draw a figure of each image (default: up to {FIGURES} images)"
    action = argparse.BooleanOptionalAction
    group.add_argument("--figures", action=action, default=None, help=text)
    text = (
        f"print only the K best classes (default: all up to {ALL} classes, the best {BEST} of more)"
    )
    group.add_argument("--top", metavar="K", type=number(int, 1), help=text)
    formats = group.add_mutually_exclusive_group()
    text = (
        "print text, a JSON object for each image, one per line, or a CSV table; JSON and CSV"
        " have the scores of all classes unless --top is given (default: text)"
    )
    formats.add_argument("--format", choices=[*PRINTERS], default="text", help=text)
    json_only = {"dest": "format", "action": "store_const", "const": "json"}
    formats.add_argument("--json", **json_only, help="the same as --format json")


def _run(options):
    run = open_run(options.run, choose_device(options.device))
    files, faults = ranks.by_root(find_images, options.pictures)
    code = max((_fault(fault) for fault in faults), default=0)
    figures = ranks.by_root(_figures, options, run.place_of("predictions"), files)
    if figures and (note := plotting.legible(run.model.class_names)[1]):
        fail(NAME, note)
    if options.invert == "auto" and run.model.preprocessing.background is None:
        message = f"{run.path} does not record whether it was trained on light or dark backgrounds"
        fail(NAME, f"{message}: images are not inverted; use --invert yes to invert them")
    show = PRINTERS[options.format](run.model.class_names, options.top)
    bar = {"unit": " images", "delay": 1, "leave": False, "disable": None}  # None: on a terminal
    for result in tqdm(_results(run, files, figures, options), total=len(files), **bar):
        if "error" in result:
            code = _fault(result["error"])
        show(result)
    return code


def _fault(error):
    """Print an error about one file, whose name may contain newlines, and return the exit code."""
    return fail(NAME, str(error).replace("\n", "\\n"))


def _figures(options, usual, files):
    """Return the figure path for each image file, or None to draw no figures.

    Existing files are not replaced, except in the folder `usual`: this command created its files,
    unless they are input images.
    """
    many = options.figures is None and not options.out and len(files) > FIGURES
    if many:
        fail(NAME, f"figures of {len(files):,} images are skipped; give --figures to draw them")
    if many or options.figures is False or not files:
        return None
    folder = options.out or usual
    results_folder(folder, "choose another --out, or skip the figures with --no-figures")
    figures = [folder / f"{name}.png" for name in file_names(file.stem for file in files)]
    pictures = {os.path.realpath(file) for file in files if isinstance(file, Path)}
    for figure in figures:
        if figure.exists() and (options.out or os.path.realpath(figure) in pictures):
            raise DataError(f"{figure} already exists: choose another --out")
    return figures


# ---- predictions


def _results(run, files, figures, options):
    """Yield the prediction of each file as a JSON-serializable dictionary, or its error.

    Images are classified in batches unless figures are drawn, which need more than the scores. The
    ranks take turns, and each of them yields all predictions.
    """
    size = 1 if figures else EVALUATION_BATCH
    for first in range(0, len(files), size * ranks.count()):
        own = first + size * ranks.rank()
        some, drawn = files[own : own + size], figures and figures[own : own + size]
        for found in ranks.gather(_results_of(run, some, drawn, options)):
            yield from found


def _results_of(run, files, figures, options):
    """Return the predictions of some files; those of one batch are computed together."""
    some = [_read(run, file, options) for file in files]
    if figures:
        return [_drawn(run, *one, figure) for one, figure in zip(some, figures, strict=True)]
    scores = iter(_scores(run.model, [shown for _, shown in some if shown is not None]))
    found = []
    for facts, shown in some:
        own = None if shown is None else next(scores)
        if own is not None:
            found.append(_completed(run, facts, own))
        else:
            found.append(facts if shown is None else _without_memory(facts["file"]))
    return found


def _read(run, file, options):
    """Return what is known about an image file before its prediction, and the network's input.

    If the file cannot be used, the input is None.
    """
    invert, centre = CHOICES[options.invert], CHOICES[options.centre]
    try:
        picture = read_picture(file)
        shown, changes = run.model.preprocessing.apply(picture, invert=invert, centre_ink=centre)
    except DataError as error:
        return {"file": str(file), "error": str(error)}, None
    except MemoryError:
        return _without_memory(file), None
    return {
        "file": str(file),
        "size": list(picture.shape[1:]),
        "channels": len(picture),
        **changes,
        "shown": list(run.input_shape),
        "blank": bool(picture.min() == picture.max()),
        "figure": None,
    }, shown


def _without_memory(file):
    return {"file": str(file), "error": f"{file}: {NO_MEMORY}"}


def _scores(model, pictures):
    """Return the scores of each image as an array (J,), or None if memory is insufficient."""
    try:
        return inspection.scores(model, np.stack(pictures)) if pictures else []
    except MemoryError:
        if len(pictures) == 1:
            return [None]
    return [scores for picture in pictures for scores in _scores(model, [picture])]


def _completed(run, facts, scores):
    """Add the prediction to the facts about an image. scores: array (J,)."""
    ranking, names = np.argsort(-scores, kind="stable"), run.model.class_names
    named = {names[k]: float(scores[k]) for k in ranking}
    seen, doubt = seen_classes(run.model, named, run.rival)
    found = {"answer": names[ranking[0]], "seen": seen, "doubt": doubt, "score": run.model.score}
    return {"file": facts["file"], **found, "scores": named, **facts}


def _drawn(run, facts, shown, figure):
    """Classify one image and draw its figure; return the result."""
    if shown is None:
        return facts
    try:
        view = inspection.view(run.model, shown)
        result = _completed(run, facts | {"figure": str(figure)}, view.scores)
        _draw(run, shown, view, result)
    except MemoryError:
        return _without_memory(facts["file"])
    return result


def _draw(run, shown, view, result):
    """Draw the figure of a prediction."""
    names, _ = plotting.legible(run.model.class_names)
    ranking = [(names[k], float(view.scores[k])) for k in view.ranking]
    seen, doubt = seen_classes(run.model, dict(ranking), run.rival)
    result = {**result, "answer": names[view.answer], "seen": seen, "doubt": doubt}
    shares = drawn = None
    grid = run.model.children_grid
    if grid is not None:
        last = view.couplings[-1]
        shares = inspection.share_map(last, grid, view.answer), grid, 1 / last.shape[1]
    if view.poses is not None:
        drawn = inspection.reconstruction(run.model, view.poses, view.answer)
    headline = f"Prediction: {headline_of(result)}" if not result["doubt"] else headline_of(result)
    plotting.prediction(
        result["figure"],
        shown,
        ranking,
        run.model.score,
        limit_of(run.model, dict(ranking), run.rival),
        headline,
        shares=shares,
        drawn=drawn,
    )


if __name__ == "__main__":
    sys.exit(start(main, together=True))
