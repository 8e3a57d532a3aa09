"""What the commands share: how they start, what they take, how they fail."""

import argparse
import math
import os
import signal
import sys
import warnings
from contextlib import contextmanager
from pathlib import Path

from tqdm import tqdm

from minicaps.cli.allocator import keep_memory
from minicaps.errors import UserError
from minicaps.storage import reason
from minicaps.threads import one_blas_thread


class WrongUsage(Exception):
    """Options that make no sense for this data or this run; for the parser to refuse."""


@contextmanager
def usage():
    """Make a ValueError, found before any work, a WrongUsage."""
    try:
        yield
    except ValueError as error:
        raise WrongUsage(str(error)) from error


def start(main):
    """Run `main` with a standard output that may be a pipe, closed, or unable to show a letter.

    Ctrl-C is for `main` only: before and after, where nothing is to be saved, it ends the process
    (see `minicaps.cli.silence`).
    """
    keep_memory()
    one_blas_thread()
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed: no file that is opened later may take its place
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (as long as we run)
    sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")
    try:
        if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code = main()
        if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
    except KeyboardInterrupt:  # while options were read
        return 130
    try:
        sys.stdout.flush()
    except OSError:  # told already; Python must not try once more when it exits
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def guarded(name, work, *, no_memory="try fewer pictures, or smaller ones"):
    """Run work() and return its exit code, or 0 for None; what a user can cause becomes a sentence
    and exit code 1 (130 for Ctrl-C). Warnings become messages, once each.

    name: the command's, such as minicaps.train. no_memory: what to try then.
    """
    try:
        with _warned_once(name):
            return work() or 0
    except KeyboardInterrupt:
        return fail(name, "interrupted", code=130)
    except MemoryError:
        return fail(name, f"there is not enough memory: {no_memory}")
    except (UserError, OSError) as error:
        return fail(name, _system(error) if isinstance(error, OSError) else error)


def _system(error):
    """What the system refused, in words."""
    if isinstance(error, BrokenPipeError):
        return "stopped, as nobody reads its output any more (Broken pipe)"
    said = reason(error)
    return f"cannot use {error.filename}: {said}" if error.filename else said


def fail(name, message, code=1):
    """Say what went wrong on standard error; return the exit code."""
    print(f"{name}: {message}", file=sys.stderr)
    return code


@contextmanager
def _warned_once(name):
    """Pass on a warning as a message, and only the first that a line of code has."""
    told = set()

    def show(message, category, filename, lineno, file=None, line=None):
        if (filename, lineno) not in told:
            told.add((filename, lineno))
            tqdm.write(f"{name}: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


# ---- options


def parser_for_run(name, about, examples):
    """The parser of a command about a trained network, RUN; both texts are shown as they are."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {name}",
        description=about,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    text = "run folder (its best epoch), or a checkpoint"
    parser.add_argument("run", metavar="RUN", type=Path, help=text)
    return parser


def add_device(group):
    """Let the user choose where to compute."""
    text = "auto, cpu, gpu: where to compute (default: auto)"
    choices = ["auto", "cpu", "gpu"]
    group.add_argument("--device", choices=choices, default="auto", metavar="DEVICE", help=text)


# ---- argument types


def number(kind, low, high=math.inf, ends="[)"):
    """Return an argparse type: a number of `kind` from `low` to `high`.

    ends: as in mathematics, "[)" includes `low`, but not `high`.
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
