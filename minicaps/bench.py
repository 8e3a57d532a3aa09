"""`python -m minicaps.bench`: time a training step of CapsNet, alone or against PyTorch.

A step is forward, backward and Adam on one batch of random images, with margin and reconstruction
loss. Those who are compared take turns in one run, so that a busy or hot machine slows all alike,
and medians are reported.
"""

import argparse
import ctypes
import importlib
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path

import numpy as np
from tqdm import tqdm

import minicaps
from minicaps import Tensor, models, ops
from minicaps.allocator import keep_memory
from minicaps.optim import Adam

IMAGE, CLASSES = (1, 28, 28), 10
TRIALS = 2  # timed steps of each variant of the twin, to choose the fastest
PAUSE = 0.25  # seconds before a step: threads of OpenBLAS spin on for 0.1 s after their work


def main(arguments=None) -> int:
    options = _parser().parse_args(arguments)
    if options.against == "torch":
        try:
            importlib.import_module("torch")
        except ImportError as error:
            install = 'install it with: pip install "minicaps[torch]"'
            print(f"minicaps.bench: PyTorch is missing ({error}); {install}", file=sys.stderr)
            return 2
    about = {**describe_machine(), "preset": options.preset, "batch": options.batch}
    keep_memory()
    try:
        report = compare(options, about)
    except KeyboardInterrupt:
        print("\nminicaps.bench: interrupted", file=sys.stderr)
        return 130
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m minicaps.bench",
        description="Time a training step (forward, backward, Adam) of CapsNet on the CPU.",
    )
    parser.add_argument(
        "--against", choices=["torch"],
        help="take turns with the same network in PyTorch: the fastest of a few ways to write it,"
        " and the popular one",
    )  # fmt: skip
    presets = tuple(models.CAPSNET_PRESETS)
    parser.add_argument("--preset", choices=presets, default="paper", help="default: %(default)s")
    parser.add_argument(
        "--batch", type=_count, default=128, metavar="N", help="images a step (default: 128)"
    )
    parser.add_argument(
        "--repeats", type=_count, default=5, metavar="N", help="timed steps of each (default: 5)"
    )
    parser.add_argument("--json", type=_file, metavar="FILE", help="write all that was measured")
    return parser


def _count(text):
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"a number from 1 is wanted, not {text!r}")
    return int(text)


def _file(text):
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"cannot write {text!r}: a folder, or in none that exists")
    return path


def compare(options, about):
    """Time what the options name, print it, and return it as a dictionary for JSON."""
    rng = np.random.default_rng(0)
    images = rng.random((options.batch, *IMAGE), dtype=np.float32)
    labels = rng.integers(0, CLASSES, options.batch)
    model = models.build("capsnet", IMAGE, CLASSES, preset=options.preset)
    report = {**about, "image": IMAGE, "parameters": model.number_of_parameters()}
    racers, variants, popular = {"minicaps": training_step(model, images, labels)}, {}, {}
    if options.against == "torch":
        from minicaps import bench_torch

        report |= bench_torch.versions()
        variants = bench_torch.training_steps(bench_torch.VARIANTS, model, images, labels)
        popular = bench_torch.training_steps(bench_torch.POPULAR, model, images, labels)
    _print_head(report)
    timed = 3 if variants else 1
    total = len(variants) * (1 + TRIALS) + timed * (1 + options.repeats)
    with tqdm(total=total, unit="step", leave=False, disable=None) as bar:
        if variants:
            report["trials"] = summarise(race(variants, TRIALS, bar), options.batch)
            fastest = min(report["trials"], key=lambda trial: trial["median"])["name"]
            racers |= {fastest: variants[fastest], **popular}
            variants.clear()  # frees the memory of the others
        report["results"] = summarise(race(racers, options.repeats, bar), options.batch)
    _print_results(report)
    return report


def training_step(model, images, labels):
    """Return a function that trains `model` one step on the batch and returns the loss before."""
    optimizer = Adam(model.named_parameters())

    def step():
        model.zero_grad()
        routed = model(Tensor(images))
        drawn = model.reconstruct(routed.poses, labels)
        loss = ops.margin_loss(routed.activations, labels) + ops.reconstruction_loss(drawn, images)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def race(racers, repeats, bar):
    """Warm each step function up, then let them take turns: {name: [milliseconds]}."""
    times = {name: [] for name in racers}
    for turn in range(1 + repeats):
        for name, step in racers.items():
            bar.set_description(name)
            time.sleep(PAUSE)
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
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return {
        "cpu": _cpu_model(),
        "cores": cores,
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


def _print_head(report):
    size = "×".join(map(str, report["image"]))
    print(
        f"One training step of CapsNet, preset {report['preset']},"
        f" {report['parameters']:,} parameters, {report['batch']} images of {size}, float32"
    )
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


def _print_results(report):
    for trial in report.get("trials", ()):
        print(f"tried: {trial['name']:32}{trial['median']:9,.1f} ms")
    print(f"{'':39}{'median':>9}{'min – max':>20}{'images/s':>10}{'× ours':>8}")
    for row in report["results"]:
        spread = f"{row['min']:,.1f} – {row['max']:,.1f}"
        print(
            f"{row['name']:39}{row['median']:9,.1f}{spread:>20}"
            f"{row['images_per_second']:10,.1f}{row['ratio']:8.2f}"
        )


if __name__ == "__main__":
    sys.exit(main())
