"""`python -m minicaps.bench --profile`: which op a step spends its time in."""

import threading
import time
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial

from minicaps.bench.cases import KINDS, TrainingStep
from minicaps.graph import observer

_path = ContextVar("path", default=())  # the op that runs, and those that called it


class Profile:
    """Sums the time of everything that it watches, by name.

    rows: {path: {"calls", "forward", "backward", "update"}}, times in milliseconds. The path of an
    op that runs inside others begins with them. Its time is theirs, too; where it ran in threads,
    it is the sum over them.
    """

    def __init__(self):
        self.rows, self.lock = {}, threading.Lock()

    def watch(self, name, way, run):
        """Return run(), and note its time as the forward or backward pass, or update, of `name`."""
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
                row["calls"] += way != "backward"  # which is the same call, on its way back

    @contextmanager
    def watching(self):
        """Inside this block watch every op, in this thread and those of the engine."""
        token = observer.set(self.watch)
        try:
            yield self
        finally:
            observer.reset(token)


def profile(step, repeats):
    """Call a step function of `steps` once to warm it up, then `repeats` times, watched.

    Returns means of a step: {"milliseconds", "ops": rows, the longest first, each followed by
    those inside it, "rest": what is not in the ops}.
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
    """Yield the rows directly inside a path, each followed by those inside it."""
    own = {path: row for path, row in rows.items() if path[:-1] == inside}
    times = {path: row["forward"] + row["backward"] + row["update"] for path, row in own.items()}
    for path in sorted(own, key=times.get, reverse=True):
        mean = {key: value / repeats for key, value in own[path].items()}
        taken = times[path] / repeats
        share = {} if inside else {"share": taken / whole}
        yield {"op": path[-1], "inside": list(inside), **mean, "milliseconds": taken, **share}
        yield from _sorted(rows, repeats, whole, path)


def show(case, repeats):
    """Profile a `steps.Case` and print it; return it as a dictionary."""
    found = profile(case.step(*case.material()), repeats)
    print(f"{KINDS[case.kind]} of {case.preset}, {case.batch} images, mean of {repeats} steps")
    print_profile(found)
    print()
    return {**case._asdict(), "repeats": repeats, **found}


def print_profile(found):
    """Print what `profile` found."""
    print(f"{'ms':30}{'calls':>8}{'forward':>11}{'backward':>11}{'sum':>11}{'share':>8}")
    for row in found["ops"]:
        name = "    " * len(row["inside"]) + row["op"]
        share = f"{row['share']:8.1%}" if "share" in row else ""
        print(
            f"{name:30}{row['calls']:8,.0f}{_time(row['forward'])}{_time(row['backward'])}"
            f"{_time(row['milliseconds'])}{share}"
        )
    whole, rest = found["milliseconds"], found["rest"]
    for name, value in (("all of these", whole - rest), ("the rest", rest), ("a step", whole)):
        print(f"{name:60}{_time(value)}{value / whole:8.1%}")
    if any(row["inside"] for row in found["ops"]):
        print("indented: inside the op above, and not counted again; the sum over its threads")


def _time(value):
    return f"{value:11,.2f}" if value else f"{'':11}"
