"""`python -m minicaps.predict`: classify image files with a trained network."""

import json
import sys
from functools import partial
from pathlib import Path

from minicaps import plotting
from minicaps.backend import choose_device
from minicaps.cli.command import add_device, fail, guarded, parser_for_run, start
from minicaps.data.images import file_names, read_picture
from minicaps.data.own.files import files_in
from minicaps.errors import DataError
from minicaps.models import inspection
from minicaps.models.multilabel import SEEN
from minicaps.runs.run import open_run
from minicaps.storage import results_folder

NAME = "minicaps.predict"
AUTO = {"auto": "auto", "yes": True, "no": False}
NAMED = 3  # classes listed by name in a doubt
BAR = 40  # characters in the bar of a score of 1
ABOUT = """\
Classify images of any size, gray or color, with a trained network: print the
lengths of all class capsules, and draw a figure for each image with these
lengths, the parts that vote for the predicted class, and the reconstruction
from its capsule.
"""
EXAMPLES = """examples (the first two lines create a run, in about a minute, and images):
  python -m minicaps.train --out runs/first
  python -m minicaps.data export strokes digits
  python -m minicaps.predict runs/first digits
  python -m minicaps.predict runs/first photo.jpg --invert yes
  python -m minicaps.predict runs/first digits --json > answers.jsonl

The exit code is 0 for success, 1 if an image could not be used (the remaining
images are still classified), and 2 for wrong usage.
"""


def main(arguments=None):
    """Run the command and return the exit code.

    The exit code is 0 on success, 1 on failure, 2 on usage errors, and 130 on Ctrl-C.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.no_figures and options.out:
        parser.error("--out has no effect with --no-figures: leave one of them out")
    return guarded(NAME, partial(_run, options))


def _parser():
    parser = parser_for_run(NAME, ABOUT, EXAMPLES)
    text = "image files, or folders of images"
    parser.add_argument("pictures", metavar="IMAGE", nargs="+", type=Path, help=text)
    group = parser.add_argument_group("how images are read")
    text = (
        "invert light and dark; auto: only if the border is light and that of the training images"
        " was dark, or vice versa (default: auto)"
    )
    group.add_argument("--invert", choices=["auto", "yes", "no"], default="auto", help=text)
    text = (
        "scale and center the ink as in MNIST; auto: only if the network was trained on mnist"
        " or strokes and the image has a different size (default: auto)"
    )
    group.add_argument("--centre", choices=["auto", "yes", "no"], default="auto", help=text)
    group = parser.add_argument_group("what is printed and drawn")
    text = "folder for the figures (default: RUN/predictions, replacing figures of the same name)"
    group.add_argument("--out", metavar="FOLDER", type=Path, help=text)
    group.add_argument("--no-figures", action="store_true", help="print without drawing")
    text = "print only a JSON object for each image, one per line"
    group.add_argument("--json", action="store_true", help=text)
    group = parser.add_argument_group("where to compute")
    add_device(group)
    return parser


def _run(options):
    run = open_run(options.run, choose_device(options.device))
    files, code = _files(options.pictures)
    figures = [None] * len(files)
    if not options.no_figures:
        figures = _figures(options.out, run.folder / "predictions", files)
        if note := plotting.legible(run.model.class_names)[1]:
            fail(NAME, note)
    if options.invert == "auto" and run.model.preprocessing.background is None:
        message = f"{run.path} does not record whether it was trained on light or dark backgrounds"
        fail(NAME, f"{message}: images are not inverted; use --invert yes to invert them")
    for file, figure in zip(files, figures, strict=True):
        try:
            result = _predict(run, file, options, figure)
        except DataError as error:
            code = fail(NAME, error)
            result = {"file": str(file), "error": str(error)}
        if options.json:
            print(json.dumps(result))
        elif "error" not in result:
            print(_report(result))
    return code


def _files(paths):
    """Return the image files at the given paths and an exit code.

    The exit code is 1 if a folder contains no images.
    """
    files, code = [], 0
    for path in paths:
        try:
            files += files_in(path) if path.is_dir() else [path]
        except DataError as error:
            code = fail(NAME, error)
    return files, code


def _figures(out, usual, files):
    """Return the figure path for each image file; refuse to overwrite files from other sources.

    Files in the folder `usual` were created by this command, unless they are input images.
    """
    folder = out or usual
    figures = [folder / f"{name}.png" for name in file_names(file.stem for file in files)]
    pictures = {file.resolve() for file in files}
    for figure in figures:
        if figure.exists() and (out or figure.resolve() in pictures):
            raise DataError(f"{figure} already exists: choose another --out")
    if files:
        results_folder(folder, "choose another --out, or skip the figures with --no-figures")
    return figures


def _predict(run, file, options, figure):
    """Return the prediction for a file as a JSON-serializable dictionary, and draw the figure.

    figure: path of the figure, or None to draw no figure.
    """
    picture = read_picture(file)
    model, names = run.model, run.model.class_names
    invert, centre = AUTO[options.invert], AUTO[options.centre]
    shown, changes = model.preprocessing.apply(picture, invert=invert, centre_ink=centre)
    view = inspection.view(model, shown)
    scores = {names[k]: float(view.scores[k]) for k in view.ranking}
    seen, doubt = _seen(model, scores)
    result = {
        "file": str(file),
        "answer": names[view.answer],
        "seen": seen,
        "doubt": doubt,
        "score": model.score,
        "scores": scores,
        "size": list(picture.shape[1:]),
        "channels": len(picture),
        **changes,
        "shown": list(run.input_shape),
        "blank": bool(picture.min() == picture.max()),
        "figure": figure and str(figure),
    }
    if figure:
        _draw(run, shown, view, result)
    return result


def _seen(model, scores):
    """Return the detected classes and a description of any doubt about the prediction.

    The description is None for a clear prediction. For multi-label images, predictions with several
    classes or with no class are valid and raise no doubt.
    """
    what, values = model.score, scores
    if model.shares:
        total = sum(scores.values()) or 1
        what, values = "share", {name: value / total for name, value in scores.items()}
    seen, doubt = [name for name, value in values.items() if value > SEEN], None
    if model.multi:
        return seen, doubt
    if not seen:
        doubt = f"none of the classes is seen (no {what} is above {SEEN})"
    elif len(seen) > 1:
        more = f" and {len(seen) - NAMED} more" if len(seen) > NAMED else ""
        doubt = f"several classes are seen ({what} above {SEEN}): {', '.join(seen[:NAMED])}{more}"
    return seen, doubt


def _headline(result):
    if result["doubt"]:
        return f"unsure: {result['doubt']}; the best guess is {result['answer']}"
    return ", ".join(result["seen"]) or f"no class (no {result['score']} is above {SEEN})"


def _report(result):
    lines = [f"{result['file']}: {_headline(result)}", f"  {_what_was_done(result)}"]
    width = max(map(len, result["scores"]))
    for name, value in result["scores"].items():
        lines.append(f"  {name:{width}}  {value:.3f}  {'#' * round(BAR * value)}".rstrip())
    if result["figure"]:
        lines.append(f"  figure: {result['figure']}")
    return "\n".join(lines)


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


def _draw(run, shown, view, result):
    """Draw the figure of a prediction."""
    names, _ = plotting.legible(run.model.class_names)
    ranking = [(names[k], float(view.scores[k])) for k in view.ranking]
    seen, doubt = _seen(run.model, dict(ranking))
    result = {**result, "answer": names[view.answer], "seen": seen, "doubt": doubt}
    shares = drawn = None
    grid = run.model.children_grid
    if grid is not None:
        last = view.couplings[-1]
        shares = inspection.share_map(last, grid, view.answer), grid, 1 / last.shape[1]
    if view.poses is not None:
        drawn = inspection.reconstruction(run.model, view.poses, view.answer)
    headline = f"Prediction: {_headline(result)}" if not result["doubt"] else _headline(result)
    plotting.prediction(
        result["figure"],
        shown,
        ranking,
        run.model.score,
        headline,
        shares=shares,
        drawn=drawn,
    )


if __name__ == "__main__":
    sys.exit(start(main))
