"""`python -m minicaps.predict`: what a trained network says of pictures."""

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
NAMED = 3  # of the classes seen
BAR = 40  # characters of a score of 1
ABOUT = """\
Classify pictures of any size, grey or in colour, by a trained network: print
the lengths of all capsules, and draw for each picture a figure: them, where the
parts lie that vote for the answer, and what the decoder draws from its capsule.
"""
EXAMPLES = """examples (the first two lines make a run, in a minute, and pictures):
  python -m minicaps.train --out runs/first
  python -m minicaps.data export strokes digits
  python -m minicaps.predict runs/first digits
  python -m minicaps.predict runs/first photo.jpg --invert yes
  python -m minicaps.predict runs/first digits --json > answers.jsonl

The exit code is 0; 1 if a picture could not be used (the others still are);
2 for wrong usage.
"""


def main(arguments=None):
    """Run the command; return its exit code: 0 done, 1 a failure, 2 wrong usage, 130 Ctrl-C."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.no_figures and options.out:
        parser.error("--out is for figures: leave it or --no-figures out")
    return guarded(NAME, partial(_run, options))


def _parser():
    parser = parser_for_run(NAME, ABOUT, EXAMPLES)
    text = "picture files, or folders of pictures"
    parser.add_argument("pictures", metavar="PICTURE", nargs="+", type=Path, help=text)
    group = parser.add_argument_group("how pictures are read")
    text = (
        "make dark light and light dark; auto: if the border is light and that of the training"
        " pictures was dark, or the reverse (default: auto)"
    )
    group.add_argument("--invert", choices=["auto", "yes", "no"], default="auto", help=text)
    text = (
        "make the ink as large as MNIST's and move it to the middle; auto: if the network was"
        " trained on mnist or strokes and the picture has another size (default: auto)"
    )
    group.add_argument("--centre", choices=["auto", "yes", "no"], default="auto", help=text)
    group = parser.add_argument_group("what comes out")
    text = "folder of the figures (default: RUN/predictions, over earlier ones of the same name)"
    group.add_argument("--out", metavar="FOLDER", type=Path, help=text)
    group.add_argument("--no-figures", action="store_true", help="print only")
    text = "print a JSON object for each picture, on a line, and nothing else"
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
    if options.invert == "auto" and run.model.preprocessing.background is None:
        message = f"{run.path} does not say whether it was trained on light or dark backgrounds"
        fail(NAME, f"{message}: pictures are not inverted; --invert yes inverts them")
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
    """The picture files at the paths, and the exit code: 1 if a folder has none."""
    files, code = [], 0
    for path in paths:
        try:
            files += files_in(path) if path.is_dir() else [path]
        except DataError as error:
            code = fail(NAME, error)
    return files, code


def _figures(out, usual, files):
    """Where the figure of each file goes. None goes over a file that this command did not make:
    in the folder `usual` all but the pictures themselves were made by it."""
    folder = out or usual
    figures = [folder / f"{name}.png" for name in file_names(file.stem for file in files)]
    pictures = {file.resolve() for file in files}
    for figure in figures:
        if figure.exists() and (out or figure.resolve() in pictures):
            raise DataError(f"{figure} exists already: choose another --out")
    if files:
        results_folder(folder, "choose another --out, or leave figures out by --no-figures")
    return figures


def _predict(run, file, options, figure):
    """What the network says of a file, as a dictionary for JSON; draws the figure, if any."""
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
    """The classes that are seen, and why the answer is doubtful, in words; None if it is not.

    Where a picture may have several classes it may have none, so neither is doubtful."""
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
        return f"unsure: {result['doubt']}; the nearest is {result['answer']}"
    return ", ".join(result["seen"]) or f"none of the classes (no {result['score']} above {SEEN})"


def _report(result):
    lines = [f"{result['file']}: {_headline(result)}", f"  {_what_was_done(result)}"]
    width = max(map(len, result["scores"]))
    for name, value in result["scores"].items():
        lines.append(f"  {name:{width}}  {value:.3f}  {'#' * round(BAR * value)}".rstrip())
    if result["figure"]:
        lines.append(f"  figure: {result['figure']}")
    return "\n".join(lines)


def _what_was_done(result):
    """How the picture in the file became the one that the network sees, in a line."""
    (height, width), (channels, *size) = result["size"], result["shown"]
    steps = [f"{height}×{width} pixels, {'grey' if result['channels'] == 1 else 'colour'}"]
    if result["blank"]:
        steps.append("all alike: nothing to see (if its ground is transparent, save it on white)")
    if result["inverted"]:
        steps.append(f"inverted (its border was {result['border']})")
    if channels != result["channels"]:
        steps.append("made grey" if channels == 1 else "grey in all colours")
    if result["centred"]:
        steps.append("ink centred as in MNIST")
    if [height, width] != size:
        steps.append(f"fitted to {size[0]}×{size[1]}")
    return ", ".join(steps)


def _draw(run, shown, view, result):
    """Draw the figure of a prediction."""
    ranking = list(result["scores"].items())
    shares = drawn = None
    grid = run.model.children_grid
    if grid is not None:
        last = view.couplings[-1]
        shares = inspection.share_map(last, grid, view.answer), grid, 1 / last.shape[1]
    if view.poses is not None:
        drawn = inspection.reconstruction(run.model, view.poses, view.answer)
    headline = f"Answer: {_headline(result)}" if not result["doubt"] else _headline(result)
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
