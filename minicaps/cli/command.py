"""Startup, error handling, and option types shared by the commands."""

import argparse
import io
import math
import os
import shlex
import signal
import sys
import traceback
import warnings
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tqdm import tqdm

from minicaps import ranks
from minicaps.cli.allocator import keep_memory
from minicaps.cli.blas import one_blas_thread
from minicaps.errors import UserError, escaped
from minicaps.storage import reason

LINES = "\n"  # a message may have several


class WrongUsage(Exception):
    """Usage error for options that turn out to be invalid for the data or the run."""

    def __init__(self, message):
        super().__init__(escaped(message, keep=LINES))


@contextmanager
def usage():
    """Convert ValueError to WrongUsage in a block that runs before any work is done."""
    try:
        yield
    except ValueError as error:
        raise WrongUsage(str(error)) from error


def start(main, *, together=False):
    """Run `main`, even if standard output is closed, is a pipe, or cannot display some characters.

    Only `main` handles Ctrl-C. Before and after `main`, there is nothing to save, so Ctrl-C ends
    the process (see `minicaps.cli.silence`).

    together: whether several ranks share the work; otherwise, rank 0 does all of it.
    """
    keep_memory()
    try:
        several, leads = ranks.count() > 1, ranks.is_root()
    except UserError as error:
        return fail("minicaps", error) if ranks.is_told_to_print() else 1
    with one_blas_thread():
        if not several:
            return _with_streams(main)
        if together:
            return _with_streams(partial(_on_every_rank, main))
        with ranks.alone():
            return _with_streams(main) if leads else 0


def _on_every_rank(main):
    """Run `main` on all ranks, of which rank 0 prints, and end all of them if one fails alone."""
    if not (root := ranks.is_root()):
        sys.stdout, sys.stderr = open(os.devnull, "w"), io.StringIO()  # noqa: SIM115
    try:
        code = main()
    except SystemExit as error:
        code = error.code
    except KeyboardInterrupt:
        code = 130
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
        ranks.abort(1)
    if code and not ranks.all_fail():
        if not root:
            lines = sys.stderr.getvalue().splitlines() or [f"exit code {code}"]
            print(f"{lines[-1]} (rank {ranks.rank()})", file=sys.__stderr__, flush=True)
        ranks.abort(code)
    return code


def _with_streams(main):
    """Prepare the standard streams, run `main`, and return the exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed: no file opened later may take its place
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (stays open until we exit)
    sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")
    try:
        if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code = main()
        if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
    except KeyboardInterrupt:  # while the options were parsed
        return 130
    try:
        sys.stdout.flush()
    except OSError:  # already reported; Python must not try again when it exits
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def guarded(name, work, *, no_memory="try fewer or smaller images"):
    """Run work() and return its exit code, or 0 if the result is None.

    Errors that a user can cause are printed as one sentence and result in exit code 1, or 130 for
    Ctrl-C. Each warning is printed only once.

    name: name of the command, such as minicaps.train. no_memory: what to try if memory runs out, or
        a function that returns it.
    """
    try:
        with _warned_once(name):
            return work() or 0
    except KeyboardInterrupt:
        return fail(name, "interrupted", code=130)
    except MemoryError:
        advice = no_memory() if callable(no_memory) else no_memory
        return fail(name, f"there is not enough memory: {advice}")
    except (UserError, OSError) as error:
        return fail(name, _system(error) if isinstance(error, OSError) else error)


def _system(error):
    """Return a description of an operating system error."""
    if isinstance(error, BrokenPipeError):
        return "stopped because the output pipe was closed (Broken pipe)"
    said = reason(error)
    return f"cannot use {error.filename}: {said}" if error.filename else said


def command_line(name, *arguments) -> str:
    """Return the shell command that runs `name` with these arguments on as many ranks as now."""
    launcher = ["mpiexec", "-n", str(ranks.count())] if ranks.count() > 1 else []
    return shlex.join([*launcher, "python", "-m", name, *arguments])


def fail(name, message, code=1):
    """Print an error message to standard error and return the exit code.

    Only newlines before indented lines remain: a file name could fake a message with any other.
    """
    text = "\n  ".join(map(escaped, str(message).split("\n  ")))
    tqdm.write(f"{name}: {text}", file=sys.stderr)
    return code


@contextmanager
def _warned_once(name):
    """Print warnings as messages, but only the first warning from each line of code."""
    told = set()

    def show(message, category, filename, lineno, file=None, line=None):
        if (filename, lineno) not in told:
            told.add((filename, lineno))
            tqdm.write(f"{name}: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


# ---- options


def parser_for_run(name, about, examples, *, otherwise=None):
    """Return a parser for a command that uses a trained network RUN.

    about, examples: texts that are shown verbatim. otherwise: what is used without RUN, in words,
    if RUN may be left out.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m {name}",
        description=about,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    text = "run folder (its best epoch is used), checkpoint file or safetensors file"
    text += f" (default: {otherwise})" if otherwise else ""
    nargs = "?" if otherwise else None
    parser.add_argument("run", metavar="RUN", type=Path, nargs=nargs, help=text)
    return parser


def add_device(group):
    """Add the option --device."""
    text = "device to compute on: auto, cpu, gpu (default: auto)"
    choices = ["auto", "cpu", "gpu"]
    group.add_argument("--device", choices=choices, default="auto", metavar="DEVICE", help=text)


# ---- argument types


def number(kind, low, high=math.inf, ends="[)"):
    """Return an argparse type that accepts numbers of type `kind` from `low` to `high`.

    ends: brackets of the interval; "[)" includes `low` but not `high`.
    """
    what = "a whole number" if kind is int else "a number"
    span = f"of at least {low}" if ends[0] == "[" else f"above {low}"
    if high < math.inf:
        span += f" and at most {high}" if ends[1] == "]" else f" and below {high}"

    def convert(text):
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        excluded = (value == low and ends[0] == "(") or (value == high and ends[1] == ")")
        if excluded or not low <= value <= high:
            raise argparse.ArgumentTypeError(f"must be {what} {span}, not {text!r}")
        return value

    return convert
