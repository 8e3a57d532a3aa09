"""Measure how training scales with ranks on this machine, and model it for up to 1,024 machines."""

import importlib.util
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from tqdm import tqdm

from minicaps.bench import cost
from minicaps.bench import scaling_tables as tables
from minicaps.bench.cases import Case
from minicaps.bench.on_ranks import added_byte, timed_step
from minicaps.cli.measuring import describe_machine, output_of
from minicaps.plotting.speedups import speedups
from minicaps.threads import cores

SIZES = [2**k for k in (10, 14, 18, 22, 25)]  # bytes of the measured sums
BUCKETS = 8  # of gradients summed during the backward pass, in the model
MOST = 1024  # ranks in the model
# Assumed networks between machines: seconds per message, and seconds per byte
NETWORKS = {"10 Gbit/s": (50e-6, 8 / 10e9), "100 Gbit/s": (10e-6, 8 / 100e9)}
INSTALL = 'install mpi4py and mpiexec with: pip install -e ".[mpi]"'


def measure(presets, batch, repeats):
    """Measure steps and sums, model the rest, print the results, and return them.

    batch: images in all (strong scaling) or on each rank (weak scaling).
    """
    found: dict[str, Any] = {
        "batch": batch,
        "sizes": SIZES,
        "buckets": BUCKETS,
        "networks": NETWORKS,
    }
    found |= {"cpu": describe_machine()["cpu"], "threads": cores()}
    found["per_added"] = added_byte(SIZES[-1], 4 * repeats)
    reason = cannot_measure()
    if reason:
        print(f"minicaps.bench: {reason}", file=sys.stderr)
    counts = [] if reason else doubling(min(cores(), batch))
    order = {"presets": presets, "batch": batch, "sizes": SIZES, "repeats": repeats}
    bar = tqdm(counts, desc="ranks", unit="count", leave=False, disable=None)
    found["measured"] = [run_ranks(n, order) for n in bar]
    found["fits"] = fit_sums(found["measured"], found["per_added"])
    if counts:
        tables.print_measured(found)
        tables.print_sums(found)
    found["models"] = [model(preset, batch, repeats, found["per_added"]) for preset in presets]
    tables.print_models(found)
    return found


def doubling(most):
    """Return 1, 2, 4, … and finally `most`."""
    return sorted({*(2**k for k in range(most.bit_length())), most})


def cannot_measure():
    """Return the reason why ranks cannot be measured here, or None."""
    if importlib.util.find_spec("mpi4py") is None or launcher() is None:
        return f"without MPI, the scaling on this machine is not measured: {INSTALL}"
    if not hasattr(os, "sched_setaffinity"):
        return "this system cannot bind a rank to a core, so the scaling is not measured"
    return None


def launcher():
    """Return the path of this environment's mpiexec, else that of another one, or None."""
    own = Path(sys.executable).with_name("mpiexec")
    return str(own) if own.exists() else shutil.which("mpiexec")


def run_ranks(count, order):
    """Run `minicaps.bench.on_ranks` on `count` ranks, and return what it prints."""
    module = "minicaps.bench.on_ranks"
    line = [launcher(), "-n", str(count), sys.executable, "-m", module, json.dumps(order)]
    return json.loads(output_of(line, module))


def fit_sums(measured, per_added):
    """Fit a link to all measured sums for each way to sum; return the fits, the best first."""
    sums = [(run["ranks"], size, taken) for run in measured for size, taken in run["sums"]]
    fits = []
    for name, work in cost.SUMS.items() if sums else ():
        link, error = cost.fit_link(sums, per_added, work)
        fits.append({"sum": name, **link._asdict(), "error": error})
    return sorted(fits, key=lambda fit: round(fit["error"], 6))


def model(preset, batch, repeats, per_added):
    """Measure steps of one rank on all cores, and model ranks on as many machines.

    Returns the measured step, and a row of times for each network and number of ranks.
    """
    bar = tqdm(doubling(batch), desc=f"steps of {preset}", leave=False, disable=None)
    timed = {images: timed_step(preset, images, repeats) for images in bar}
    seconds = [one["step"] for one in timed.values()]
    share = timed[batch]["backward"] / timed[batch]["step"]
    step = cost.Step(list(timed), seconds, share)
    size = 4 * Case("train", preset, 1).material()[0].number_of_parameters()
    rows = []
    for network, (latency, per_byte) in NETWORKS.items():
        link = cost.Link(latency, per_byte, per_added)
        for n in doubling(MOST):
            rows.append({"network": network, **simulate(step, batch, n, size, link)})
    return {"preset": preset, "bytes": size, "step": step._asdict(), "rows": rows}


def simulate(step, batch, count, size, link):
    """Return the modeled times of a sum and of steps on `count` ranks, and the fastest sum."""
    name = cost.fastest(count, size, link)
    row = {"ranks": count, "sum": name, "seconds": cost.SUMS[name](count, size).seconds(link)}
    for kind, images in (("strong", -(-batch // count)), ("weak", batch)):
        for word, buckets in ((kind, 1), (f"{kind}_hidden", BUCKETS)):
            row[word] = cost.step_seconds(step, images, count, size, link, buckets)
    return row


def draw(found, path):
    """Draw the models to a PNG file, below their assumptions, but none of a busy machine."""
    models = [model for model in found["models"] if not tables.busy(model)]
    if models:
        speedups(path, models, list(NETWORKS), found["batch"], tables.assumptions(found))
    else:
        print("minicaps.bench: the machine was busy, so no figure was drawn", file=sys.stderr)
