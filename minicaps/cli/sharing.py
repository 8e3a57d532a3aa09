"""Share independent jobs, such as training runs, among processes; none is done twice.

The processes may be the ranks of one `mpiexec`, commands in several terminals, or both, also on
several machines that use the same folder. A job is locked while it is being done (see
`minicaps.storage.claimed`), so the jobs of a process that was killed are free again.
"""

import io
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minicaps import ranks
from minicaps.cli.command import fail
from minicaps.errors import Interrupted, UserError, escaped
from minicaps.storage import InUse, claimed

PAUSE, LONGEST = 0.5, 30.0  # seconds between attempts while others work: at first, and at most
STEP = 0.2  # seconds until a stop is noticed
_here: dict[str, Callable] = {}  # on every rank: the function that does a job, given its number


@dataclass(frozen=True)
class Job:
    """Something to be done once.

    title: what to call it. heading: what to print when it begins. lock: lock file while it is being
    done. done: function that returns whether it has been done. work: function that does it; raises
    InUse if it depends on something that another process is doing.
    """

    title: str
    heading: str
    lock: Path
    done: Callable[[], bool]
    work: Callable[[], Any]


def share(name, jobs, stop, quiet=False):
    """Do all jobs, together with the other ranks and with other processes that do the same jobs.

    A job that another process is doing is left to it; it is tried again later, in case that process
    was stopped. Returns once every job is done, here or elsewhere. After an error or a stop, no job
    is begun; when those of the other ranks have ended, all ranks raise the error or Interrupted.

    name: name of the command, for messages. jobs: list of `Job`, the same on all ranks; each runs
    as a single rank. stop: `StopRequest`. quiet: whether to show errors only.
    """
    _here["do"] = _doing(name, jobs, stop, quiet)
    error = None
    with ranks.pool() as pool:
        if ranks.is_root():
            try:
                _do_all(pool, jobs, stop, quiet)
            except Exception as raised:
                error = raised
    ranks.by_root(_end, error)


def _end(error):
    if error is not None:
        raise error


def _do_all(pool, jobs, stop, quiet):
    left, pause, told = list(range(len(jobs))), PAUSE, quiet
    while left:
        before, left = len(left), _try(pool, left)
        if len(left) < before:
            pause = PAUSE
            continue
        if pause > PAUSE and not told:  # at first, the ranks may only have met each other
            told = True
            print(f"\n{_waiting([jobs[number].title for number in left])}")
        _wait(pause, stop)
        pause = min(2 * pause, LONGEST)


def _doing(name, jobs, stop, quiet):
    """Return a function that tries to do the job of a number, and returns whether it is done."""
    several, begun = ranks.count() > 1, set()

    def do(number):
        job = jobs[number]
        if stop:
            raise Interrupted
        if job.done():
            return True
        with _speaking_as(job.title, several):
            try:
                with claimed(job.lock):
                    if not job.done():  # another process may have done it just before
                        if not quiet and number not in begun:
                            print("begins" if several else job.heading)
                        begun.add(number)
                        with ranks.alone():
                            job.work()
            except InUse:
                return False
            except Interrupted:
                if several:  # the other ranks may need a while
                    print("stopped and saved")
                raise
            except UserError as error:
                if several:
                    fail(name, f"{error}; no other training run is begun")
                raise
        return True

    return do


def _do(number):
    """Do a job; the only function whose name travels to other ranks."""
    return _here["do"](number)


def _try(pool, numbers):
    """Try to do each job once, on all ranks, and return those that other processes are doing."""
    if pool is None:
        return [number for number in numbers if not _do(number)]
    tasks = {number: pool.submit(_do, number) for number in numbers}

    def begin_no_more(task=None):
        if task is None or (not task.cancelled() and task.exception()):
            for other in tasks.values():
                other.cancel()

    for task in tasks.values():
        task.add_done_callback(begin_no_more)
    done = {}
    try:
        for number, task in tasks.items():
            if not task.cancelled() and task.cancel():  # no rank has begun it: this one does
                done[number] = _do(number)
        for number, task in tasks.items():
            if number not in done and not task.cancelled():
                done[number] = task.result()
    finally:
        begin_no_more()
    return [number for number in numbers if not done[number]]


def _waiting(titles):
    """Return a sentence about the jobs that other processes are doing."""
    return (
        f"Waiting for other processes to finish: {'; '.join(titles)}. If one of them stops, this"
        " process resumes its work. Ctrl-C stops the waiting only."
    )


def _wait(seconds, stop):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if stop:
            raise Interrupted
        time.sleep(STEP)


def all_of(function, names):
    """Return {name: function(name)}; if it raises InUse for a name, raise it after all others."""
    found, busy = {}, None
    for name in names:
        try:
            found[name] = function(name)
        except InUse as error:
            busy = error
    if busy is not None:
        raise busy
    return found


# ---- several ranks write to one terminal


@contextmanager
def _speaking_as(title, several):
    """Begin each line of output with a title, if the output of several ranks is mixed."""
    if not several:
        yield
        return
    start = f"[{escaped(title)}] "
    # The streams of the process: `cli.command` silences those of all ranks except rank 0
    out, err = (_Lines(stream, start) for stream in (sys.__stdout__, sys.__stderr__))
    with redirect_stdout(out), redirect_stderr(err):
        yield


@contextmanager
def speaking_as(title):
    """Begin the lines in this block with another title, if lines begin with a title at all."""
    streams = [stream for stream in (sys.stdout, sys.stderr) if isinstance(stream, _Lines)]
    before = [stream.start for stream in streams]
    for stream in streams:
        stream.start = f"[{escaped(title)}] "
    try:
        yield
    finally:
        for stream, start in zip(streams, before, strict=True):
            stream.start = start


class _Lines(io.TextIOBase):
    """Text stream that passes on whole lines, each after `start`, and leaves out empty lines."""

    def __init__(self, stream, start):
        self.stream, self.start, self.rest = stream, start, ""

    def write(self, text):
        *lines, self.rest = (self.rest + text).split("\n")
        for line in lines:
            if line.strip():
                self.stream.write(f"{self.start}{line}\n")
        return len(text)

    def flush(self):
        self.stream.flush()
