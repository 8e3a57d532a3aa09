"""Run the blocks of a page, one after the other, in one namespace."""

import contextlib
import inspect
import io
import pkgutil
import textwrap
import traceback
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import matplotlib.pyplot as plt
from matplotlib import style

from lessons.machinery import figures
from lessons.machinery.page import PageError, read_blocks


@dataclass
class Outcome:
    """The lines that a block printed and the figures that it showed."""

    lines: list[str]
    figures: list[figures.Picture]


@contextlib.contextmanager
def stage(shown):
    """Provide an empty namespace for blocks, with a `plt.show()` that moves figures to `shown`.

    Matplotlib uses the settings of the lessons inside the context and restores its own afterwards.
    Everything else that a page changes persists in the process, so give each lesson its own.
    """

    def show(*args, **kwargs):
        shown.extend(figures.take_figures())

    look = style.context(Path(__file__).with_name("lessons.mplstyle"), after_reset=True)
    with look, mock.patch.object(plt, "show", show):
        try:
            yield {"__name__": "__main__"}
        finally:
            plt.close("all")


def run_block(block, path, namespace):
    """Run one block; raise PageError if it fails. `inspect.getsource` finds its functions."""
    with blame_page(path, block.line):
        exec(compile(block.code, str(path), "exec", dont_inherit=True), namespace)
    if plt.get_fignums():
        raise PageError(block.end, "a figure was drawn but not shown: call plt.show()")


@contextlib.contextmanager
def blame_page(path, line):
    """Turn an error in the page's code into a PageError, on `line` if the error names no line."""
    try:
        yield
    except Exception as error:
        line, trace = _locate(error, path, line)
        raise PageError(line, f"this line raises an error\n{trace}") from error


def run_page(path):
    """Run a page; yield each block that runs, with its Outcome."""
    shown = []
    with stage(shown) as namespace:
        for block in read_blocks(path):
            if block.quote is None:
                with contextlib.redirect_stdout(io.StringIO()) as printed:
                    run_block(block, path, namespace)
                lines = [line.rstrip() for line in printed.getvalue().splitlines()]
                yield block, Outcome(lines, shown[:])
                shown.clear()


def _locate(error, path, line):
    """Return the line of the page that raised an error, and the traceback from there on."""
    trace = error.__traceback__
    while trace and trace.tb_frame.f_code.co_filename != str(path):
        trace = trace.tb_next
    if trace:
        frames = traceback.extract_tb(trace)
        line = [frame.lineno for frame in frames if frame.filename == str(path)][-1]
    elif isinstance(error, SyntaxError):
        line = error.lineno
    return line, "".join(traceback.format_exception(error.with_traceback(trace))).rstrip()


def quoted_lines(target):
    """Return the source of `module:name`, decorators included, with its indentation removed.

    Raises LookupError, with the reason, if the source cannot be found.
    """
    try:
        thing = pkgutil.resolve_name(target)
    except (ImportError, AttributeError) as error:
        raise LookupError(f"cannot quote {target}: {error}") from error
    try:
        return textwrap.dedent(inspect.getsource(getattr(thing, "fget", thing))).splitlines()
    except (TypeError, OSError) as error:
        raise LookupError(f"cannot quote {target}: not a function, method or class") from error
