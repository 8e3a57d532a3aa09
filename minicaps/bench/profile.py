"""`python -m minicaps.bench --profile`: time that a step spends in each op."""

import threading
import time
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial

from minicaps.bench.cases import KINDS, TrainingStep
from minicaps.graph import observer

_path = ContextVar("path", default=())  # the running op, after those that called it


class Profile:
    """Accumulated time of each watched op, indexed by path.

    rows: {path: {"calls", "forward", "backward", "update"}}, times in milliseconds. If one op calls
    another, the path of the inner op begins with the path of the outer op, and the time of the
    outer op includes that of the inner op. If an op runs in several threads, its time is summed
    over all threads.
    """

    def __init__(self):
        self.rows, self.lock = {}, threading.Lock()

    def watch(self, name, way, run):
        """Call run(), add the elapsed time to the row of op `name`, and return the result.

        way: "forward", "backward" or "update".
        """
        path = (*_path.get(), name)
        token, start = _path.set(path), time.perf_counter()
        try:
            return run()
        finally:
            taken = 1000 * (time.perf_counter() - start)
            _path.reset(token)
            with self.lock:
                new = {"calls": 0, "forward": 0.0, "backward": 0.0, "update": 0.0}
                row = self.rows.setdefault(path, new)
                row[way] += taken
                row["calls"] += way != "backward"  # the backward pass belongs to the same call

    @contextmanager
    def watching(self):
        """Record the time of every op inside this block, in this thread and in engine threads."""
        token = observer.set(self.watch)
        try:
            yield self
        finally:
            observer.reset(token)


def profile(step, repeats):
    """Call a step function once to warm up, then `repeats` times while its ops are being timed.

    Returns averages per step in a dictionary with the keys "milliseconds", "ops" and "rest". The
    rows in "ops" are sorted from longest to shortest, and each one is followed by its nested rows;
    "rest" is the time spent outside the ops.
    """
    found, taken = Profile(), 0.0
    step()
    if isinstance(step, TrainingStep):
        step.optimizer.step = partial(found.watch, "Adam", "update", step.optimizer.step)
    with found.watching():
        for _ in range(repeats):
            start = time.perf_counter()
            step()
            taken += 1000 * (time.perf_counter() - start)
    milliseconds = taken / repeats
    rows = list(_sorted(found.rows, repeats, milliseconds))
    rest = milliseconds - sum(row["milliseconds"] for row in rows if not row["inside"])
    return {"milliseconds": milliseconds, "ops": rows, "rest": rest}


def _sorted(rows, repeats, whole, inside=()):
    """Yield the rows directly below a path, each followed by its own nested rows."""
    own = {path: row for path, row in rows.items() if path[:-1] == inside}
    times = {path: row["forward"] + row["backward"] + row["update"] for path, row in own.items()}
    for path in sorted(own, key=times.get, reverse=True):
        mean = {key: value / repeats for key, value in own[path].items()}
        taken = times[path] / repeats
        share = {} if inside else {"share": taken / whole}
        yield {"op": path[-1], "inside": list(inside), **mean, "milliseconds": taken, **share}
        yield from _sorted(rows, repeats, whole, path)


def show(case, repeats):
    """Profile a `cases.Case`, print the profile, and return it as a dictionary."""
    found = profile(case.step(*case.material()), repeats)
    print(f"{KINDS[case.kind]} of {case.preset}, {case.batch} images, mean of {repeats} steps")
    print_profile(found)
    print()
    return {**case._asdict(), "repeats": repeats, **found}


def print_profile(found):
    """Print the result of `profile`."""
    print(f"{'ms':30}{'calls':>8}{'forward':>11}{'backward':>11}{'sum':>11}{'share':>8}")
    for row in found["ops"]:
        name = "    " * len(row["inside"]) + row["op"]
        share = f"{row['share']:8.1%}" if "share" in row else ""
        print(
            f"{name:30}{row['calls']:8,.0f}{_time(row['forward'])}{_time(row['backward'])}"
            f"{_time(row['milliseconds'])}{share}"
        )
    whole, rest = found["milliseconds"], found["rest"]
    for name, value in (("all ops", whole - rest), ("the rest", rest), ("a step", whole)):
        print(f"{name:60}{_time(value)}{value / whole:8.1%}")
    if any(row["inside"] for row in found["ops"]):
        print("indented: inside the op above, not counted again; summed over threads")


def _time(value):
    return f"{value:11,.2f}" if value else f"{'':11}"
