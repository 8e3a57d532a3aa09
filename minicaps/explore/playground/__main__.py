"""`python -m minicaps.explore.playground`: write the votes playground and open it."""

import argparse
import sys
import webbrowser
from functools import partial
from pathlib import Path

from minicaps.cli.command import guarded, start
from minicaps.explore.playground import write
from minicaps.storage import results_file

NAME = "minicaps.explore.playground"
FILE = "votes.html"
ABOUT = """\
Write one HTML page on which votes are dragged while parents, couplings and the
objective follow, and open it. The page needs no network connection.
"""


def main(arguments=None):
    """Run the command and return the exit code.

    The exit code is 0 on success, 1 on failure, 2 on usage errors, and 130 on Ctrl-C.
    """
    return guarded(NAME, partial(_run, _parser().parse_args(arguments)))


def _parser():
    parser = argparse.ArgumentParser(prog=f"python -m {NAME}", description=ABOUT)
    text = f"page to write or replace (default: {FILE})"
    parser.add_argument("--out", metavar="FILE", type=Path, default=Path(FILE), help=text)
    text = "write the page without opening it"
    parser.add_argument("--no-browser", action="store_true", help=text)
    return parser


def _run(options):
    results_file(options.out)
    write(options.out)
    print(f"wrote {options.out}: open it in a browser")
    if not options.no_browser:
        webbrowser.open(options.out.absolute().as_uri())


if __name__ == "__main__":
    sys.exit(start(main))
