"""`python -m minicaps.explore`: a page in which a trained network computes in the browser."""

import sys
import webbrowser
from functools import partial
from pathlib import Path

from minicaps.cli.command import fail, guarded, parser_for_run, start
from minicaps.errors import UserError
from minicaps.explore.explorer import explorer, explorer_of
from minicaps.explore.slim import BESIDE, NETWORKS, check, examples_of, store, stored_examples
from minicaps.runs.building import load_model
from minicaps.runs.run import dataset, open_run
from minicaps.storage import replacing, results_file

NAME = "minicaps.explore"
USUAL = "mnist"  # the network in the repository
FILE = "explorer.html"
ABOUT = """\
Write one HTML page in which a trained CapsNet computes in the browser, and open
it: draw an image, look at votes and couplings iteration by iteration, change
what the decoder draws, and see where the network fails. The page needs no
network connection, and any vector routing, image size and up to 20 classes
will do. Without RUN, the network is a small CapsNet trained on MNIST.
"""
EXAMPLES = """examples (the second line creates a run in about a minute):
  python -m minicaps.explore
  python -m minicaps.train --out runs/first
  python -m minicaps.explore runs/first
  python -m minicaps.explore runs/first --no-browser --out first.html
  python -m minicaps.train --model dense-cnn --out runs/dense
  python -m minicaps.explore runs/first --beside runs/dense
"""


def main(arguments=None):
    """Run the command and return the exit code.

    The exit code is 0 on success, 1 on failure, 2 on usage errors, and 130 on Ctrl-C.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.run is None and (options.beside or options.store):
        parser.error("--beside and --store need RUN: give a run folder")
    if options.store and options.out:
        parser.error("--store writes no page: leave out --out")
    return guarded(NAME, partial(_store if options.store else _write, options))


def _parser():
    parser = parser_for_run(NAME, ABOUT, EXAMPLES, otherwise="a network trained on MNIST")
    text = "run of a dense-cnn that is compared with RUN (same images and classes)"
    parser.add_argument("--beside", metavar="RUN", type=Path, help=text)
    text = "folder to search first for the test images of RUN"
    parser.add_argument("--data-dir", metavar="FOLDER", type=Path, help=text)
    text = f"page to write or replace (default: {FILE} in the run folder; of a file, FILE-{FILE}"
    text += " beside it; here without RUN)"
    parser.add_argument("--out", metavar="FILE", type=Path, help=text)
    text = "write the page without opening it"
    parser.add_argument("--no-browser", action="store_true", help=text)
    text = (
        "write no page, but round the network (and the one beside it) to 16 bits, check it on all"
        " test images, and store it in the repository under this name"
    )
    parser.add_argument("--store", metavar="NAME", help=text)
    return parser


def _write(options):
    """Write the page and open it."""
    run = open_run(options.run, "cpu") if options.run else None
    out = options.out or (run.place_of(FILE) if run else Path(FILE))
    results_file(out)
    if run is None:
        text = explorer_of(USUAL)
    else:
        beside = load_model(options.beside) if options.beside else None
        text = explorer(run.model, beside, _examples(run, options))
    with replacing(out) as file:
        file.write(text.encode("utf-8"))
    print(f"wrote {out} ({len(text) / 1e6:.1f} MB): open it in a browser")
    if not options.no_browser:
        webbrowser.open(out.absolute().as_uri())


def _examples(run, options):
    """Return test images for the page, or None with a note if they cannot be loaded."""
    try:
        return stored_examples(run.path) or examples_of(run, _data(run, options))
    except UserError as error:
        fail(NAME, f"the page has no test images: {error}")
        return None


def _data(run, options):
    """Load the test images of a run."""
    try:
        return dataset(run, options.data_dir, test_only=True)
    except ValueError as error:
        raise UserError(str(error)) from error


def _store(options):
    """Store a network, and the one beside it, in the repository."""
    for path, end in ((options.run, ""), (options.beside, BESIDE)):
        if path is None:
            continue
        run, file = open_run(path, "cpu"), NETWORKS / f"{options.store}{end}.npz"
        data = _data(run, options)
        said = check(run, data)
        store(run, file, None if end else examples_of(run, data))
        print(f"wrote {file} ({file.stat().st_size / 1e6:.2f} MB): {said}")


if __name__ == "__main__":
    sys.exit(start(main))
