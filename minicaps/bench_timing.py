"""How `minicaps.bench` measures: a machine described, step functions that take turns, a report."""

import ctypes
import os
import platform
import statistics
import time
from pathlib import Path

import numpy as np
from tqdm import tqdm

import minicaps
from minicaps.threads import cores

TRIALS = 2  # timed steps of each variant of the twin, to choose the fastest
PAUSE = 0.25  # seconds before a step: threads of OpenBLAS spin on for 0.1 s after their work


def contest(ours, variants, others, batch, repeats):
    """Time ours, the fastest of the variants, and the others: {"trials": …, "results": …}.

    variants, others: {name: step function}; the variants are forgotten on the way.
    """
    racers, found = {"minicaps": ours}, {}
    timed = 1 + bool(variants) + len(others)
    total = len(variants) * (1 + TRIALS) + timed * (1 + repeats)
    with tqdm(total=total, unit="step", leave=False, disable=None) as bar:
        if variants:
            found["trials"] = summarise(race(variants, TRIALS, bar), batch)
            fastest = min(found["trials"], key=lambda trial: trial["median"])["name"]
            racers |= {fastest: variants[fastest], **others}
            variants.clear()  # frees the memory of the others
        found["results"] = summarise(race(racers, repeats, bar), batch)
    return found


def race(racers, repeats, bar, pause=None):
    """Warm each step function up, then let them take turns: {name: [milliseconds]}."""
    times = {name: [] for name in racers}
    for turn in range(1 + repeats):
        for name, step in racers.items():
            bar.set_description(name)
            time.sleep(PAUSE if pause is None else pause)
            start = time.perf_counter()
            step()
            taken = 1000 * (time.perf_counter() - start)
            if turn > 0:
                times[name].append(taken)
            bar.update()
    return times


def summarise(times, batch):
    """Median, spread, images/s of {name: [milliseconds]}, and the ratio to the first median."""
    first = statistics.median(next(iter(times.values())))
    return [
        {
            "name": name,
            "milliseconds": taken,
            "median": statistics.median(taken),
            "min": min(taken),
            "max": max(taken),
            "images_per_second": 1000 * batch / statistics.median(taken),
            "ratio": statistics.median(taken) / first,
        }
        for name, taken in times.items()
    ]


def describe_machine():
    """What the figures depend on, and how busy the machine is before we begin."""
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return {
        "cpu": _cpu_model(),
        "cores": cores(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "minicaps": minicaps.__version__,
        "numpy": np.__version__,
        "blas": f"{blas['name']} {blas['version']}",
        "threads": _blas_threads(),
    }


def _cpu_model():
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _blas_threads():
    """Ask NumPy's BLAS how many threads it uses; None where it is not OpenBLAS or MKL."""
    try:
        library = ctypes.CDLL(np.linalg._umath_linalg.__file__)  # finds what it is linked to, too
    except (AttributeError, OSError):
        return None
    for prefix in ("scipy_openblas_", "openblas_"):
        for suffix in ("64_", ""):
            if ask := getattr(library, f"{prefix}get_num_threads{suffix}", None):
                return ask()
    ask = getattr(library, "MKL_Get_Max_Threads", None)
    return ask and ask()


def print_machine(report):
    print(f"{report['cpu']}, {report['cores']} cores")
    sides = [f"minicaps {report['minicaps']}, NumPy {report['numpy']}, {report['blas']}"]
    threads = [report["threads"]]
    if "torch" in report:
        sides.append(f"torch {report['torch']}")
        threads.append(report["torch_threads"])
    for side, number in zip(sides, threads, strict=True):
        print(f"{side}, threads: {number or 'unknown'}")
    if report["load"] and report["load"] > 0.5 * report["cores"]:
        print(f"the machine is busy (load {report['load']:.1f}): trust ratios more than times")
    print()


def print_results(report):
    for trial in report.get("trials", ()):
        print(f"tried: {trial['name']:32}{trial['median']:9,.1f} ms")
    print(f"{'':39}{'median':>9}{'min – max':>20}{'images/s':>10}{'× ours':>8}")
    for row in report["results"]:
        spread = f"{row['min']:,.1f} – {row['max']:,.1f}"
        print(
            f"{row['name']:39}{row['median']:9,.1f}{spread:>20}"
            f"{row['images_per_second']:10,.1f}{row['ratio']:8.2f}"
        )
