"""Timing in `minicaps.bench`: step functions take turns, and a table shows their times."""

import statistics
import time

from tqdm import tqdm

TRIALS = 3  # timed steps of each rival, to find the fastest
PAUSE = 0.25  # seconds before a step, as BLAS and OpenMP threads keep spinning after work


def contest(racers, rivals, repeats, join=None):
    """Time all rivals, then the racers together with the fastest rival.

    racers, rivals: {name: step function}; `rivals` is emptied to free memory. join: function of the
    fastest rival's name that returns more racers, placed right after it.

    Returns {"trials": rows of the rivals, "results": rows of the racers}.
    """
    (ours, step), *others = racers.items()
    chosen, trials = {}, []
    if rivals:
        trials = summarise(race(rivals, TRIALS))
        fastest = min(trials, key=lambda trial: trial["min"])["name"]
        chosen[fastest] = rivals[fastest]
        rivals.clear()  # free the memory of the other rivals
        chosen |= join(fastest) if join else {}
    racers = {ours: step, **chosen, **dict(others)}
    return {"trials": trials, "results": summarise(race(racers, repeats))}


def race(racers, repeats, pause=None):
    """Warm up the step functions, then time them in turn; return {name: [milliseconds]}."""
    times = {name: [] for name in racers}
    total = len(racers) * (1 + repeats)
    with tqdm(total=total, unit="step", leave=False, disable=None) as bar:
        for turn in range(1 + repeats):
            for name, step in racers.items():
                bar.set_description(name)
                _wait(PAUSE if pause is None else pause)
                start = time.perf_counter()
                step()
                taken = 1000 * (time.perf_counter() - start)
                if turn > 0:
                    times[name].append(taken)
                bar.update()
    return times


def _wait(seconds):
    """Wait in a busy loop, because OpenMP may lose 10 ms after both cores have been idle."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def summarise(times):
    """Return one row per name with the median, the spread, and the ratio to the first median."""
    first = statistics.median(next(iter(times.values())))
    return [
        {
            "name": name,
            "milliseconds": taken,
            "median": statistics.median(taken),
            "min": min(taken),
            "max": max(taken),
            "ratio": statistics.median(taken) / first,
        }
        for name, taken in times.items()
    ]


# Key of a row -> (title, width, format); the cell of a missing key is left blank
COLUMNS = {
    "median": ("median", 9, ",.1f"),
    "spread": ("min – max", 18, ""),
    "images_per_second": ("images/s", 9, ",.1f"),
    "gflops": ("GFLOP/s", 8, ",.1f"),
    "floor": ("floor", 6, ".0%"),
    "mebibytes": ("MiB", 6, ",.0f"),
    "ratio": ("× ours", 7, ".2f"),
}
NAMES = 37  # width of the first column; all columns together take 100


def print_heads(columns=COLUMNS):
    """Print the titles of the given columns, which are keys of COLUMNS."""
    print(" " * NAMES + "".join(f"{COLUMNS[c][0]:>{COLUMNS[c][1]}}" for c in columns))


def print_results(found, columns=COLUMNS):
    """Print the results of `contest`: one line about the rivals, then a row for each racer."""
    trials = sorted(found["trials"], key=lambda trial: trial["min"])
    if len(trials) > 1:
        times = ", ".join(f"{trial['min']:,.1f}" for trial in trials)
        print(f"{len(trials)} torch variants take {times} ms at best; the fastest one competes:")
    for row in found["results"]:
        shown = {**row, "spread": f"{row['min']:,.1f} – {row['max']:,.1f}"}
        cells = ""
        for column in columns:
            _, width, form = COLUMNS[column]
            value = shown.get(column)
            cells += f"{'' if value is None else format(value, form):>{width}}"
        print(f"{row['name']:{NAMES}}{cells}")
