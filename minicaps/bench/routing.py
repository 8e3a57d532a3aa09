"""Time individual routing algorithms and capsule layers at growing sizes or against PyTorch."""

import statistics
import tracemalloc
import warnings
from functools import partial
from typing import Any

from minicaps import routing
from minicaps.bench.tasks import POSE, conv_task, dense_task, em_task, matrix_task, votes_task
from minicaps.bench.timing import contest, print_heads, print_results, race
from minicaps.nn.matrix import COPIES
from minicaps.routing import route_in_blocks

BATCH, LAYER_BATCH = 128, 16  # defaults; LAYER_BATCH for most contests with PyTorch
BASE = {"children": 256, "parents": 16, "iterations": 3}  # its votes, 32 MiB, exceed most caches
_VECTORS: dict[str, Any] = {
    **{f"agreement, {kind}": partial(routing.agreement, update=kind) for kind in routing.UPDATES},
    **{name: route for name, route in routing.ROUTINGS.items() if name != "agreement"},
}
_FIXED_POINTS = ("agreement, recompute", "agreement, spherical", "distance")
ROUTINGS = {
    **_VECTORS,
    "em": routing.em,
    **{f"{name}, implicit": partial(_VECTORS[name], gradient="implicit") for name in _FIXED_POINTS},
}
# Convolutional layers of the small matrix capsule network for 28×28 images:
# side of the grid, types of children, types of parents, stride
LAYERS = ((14, 8, 16, 2), (6, 16, 16, 1))
DIGITCAPS = (1152, 10, 8)  # of CapsNet, preset paper: I, J, N


def sizes(batch):
    """Return the sizes of the table as {title: numbers}, starting with the base size."""
    base = {"batch": batch, **BASE}
    return {"base": base, **{f"2 × {name}": base | {name: 2 * n} for name, n in base.items()}}


def grow(batch, repeats):
    """Measure the time and memory of routing at several sizes; print and return the results."""
    batch = batch or BATCH
    print(f"Routing, forward and backward, float32, base: {batch} samples,")
    print(", ".join(f"{n} {what}" for what, n in BASE.items()) + f", poses of {POSE}")
    print("MiB: peak memory beyond the votes and their gradient; (ratio to base)")
    table = []
    with warnings.catch_warnings():
        # With so few iterations, no fixed point is reached, so all of them are carried out.
        warnings.filterwarnings("ignore", ".* iterations did not find", RuntimeWarning)
        _print_titles(sizes(batch))
        for name in ROUTINGS:
            rows = _grow_one(name, batch, repeats)
            _print_rows(rows)
            table += rows
    print()
    return {"batch": batch, "pose": POSE, "sizes": sizes(batch), "table": table}


def _grow_one(name, batch, repeats):
    """Return the table rows of one routing algorithm, starting with the base size."""
    tasks = {size: growth_task(name, **numbers) for size, numbers in sizes(batch).items()}
    times = race({f"{name}, {size}": tasks[size].step for size in tasks}, repeats, pause=0)
    rows = []
    for (size, task), taken in zip(tasks.items(), times.values(), strict=True):
        row = {"routing": name, "size": size, "milliseconds": taken}
        row["median"] = statistics.median(taken)
        row["mebibytes"] = peak_memory(task)
        base = rows[0] if rows else row
        row["time_ratio"] = row["median"] / base["median"]
        row["memory_ratio"] = row["mebibytes"] / base["mebibytes"]
        rows.append(row)
    return rows


def growth_task(name, batch, children, parents, iterations):
    """Return the task for one cell of the table.

    name: a key of ROUTINGS.
    """
    make = em_task if name == "em" else votes_task
    return make(partial(ROUTINGS[name], iterations=iterations), batch, children, parents)


def peak_memory(task):
    """Return the peak memory of a step in MiB, excluding the votes and their gradient."""
    tracemalloc.start()
    try:
        task.step()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return (peak - task.arrays[0].nbytes) / 2**20


def _print_titles(sizes):
    base, *others = sizes
    print(f"{'':29}{base:>7}" + "".join(f"{size:>15}" for size in others))


def _print_rows(rows):
    """Print time and memory of one routing algorithm at each size, with ratios to the base size."""
    base, *others = rows
    for label, unit, value, ratio in (
        (base["routing"], "ms", "median", "time_ratio"),
        ("", "MiB", "mebibytes", "memory_ratio"),
    ):
        cells = "".join(f"{row[value]:8,.1f} ({row[ratio]:4.2f})" for row in others)
        print(f"{label:26}{unit:3}{base[value]:7,.1f}{cells}")


def compare(batch, repeats):
    """Time routing and capsule layers against PyTorch; print the results and return them."""
    from minicaps.bench import twins_routing as twins

    columns, found = ("median", "spread", "images_per_second", "ratio"), []
    print("Routing and capsule layers, forward and backward to all inputs and weights, float32")
    for title, kind, images, task in contests(batch):
        print(f"\n{title}, {images} images")
        racers = {"minicaps": task.step}
        racers |= twins.routing_steps(twins.POPULAR_ROUTINGS.get(kind, {}), task)
        rivals = twins.routing_steps(twins.ROUTINGS[kind], task)
        trials = contest(racers, rivals, repeats)
        for row in trials["results"]:
            row["images_per_second"] = 1000 * images / row["median"]
        print_heads(columns)
        print_results(trials, columns)
        found.append({"title": title, "batch": images, **trials})
    print()
    return {"contests": found}


def contests(batch):
    """Yield (title, kind, images, task) for every task that is compared with PyTorch.

    batch: images, or None for the defaults.
    """
    images = batch or LAYER_BATCH
    for make, kind, name in (
        (_given_em, "em", "EM of given votes"),
        (matrix_task, "matrix capsules", "MatrixConvCaps, EM"),
        (conv_task, "convolutional capsules", "ConvCaps, agreement"),
    ):
        for side, types, parents, stride in LAYERS:
            places = (side - 3) // stride + 1
            size = f"{places}×{places} windows × {9 * types} children × {parents} parents × {POSE}"
            yield f"{name}, {size}", kind, images, make(images, side, types, parents, stride)
    images = batch or BATCH
    children, parents, size = DIGITCAPS
    title = f"DenseCaps, agreement, {children} children of {size}, {parents} parents × {POSE}"
    yield title, "dense capsules", images, dense_task(images, *DIGITCAPS)


def _given_em(images, side, types, parents, stride):
    """Return an EM routing task in which each window is a separate sample.

    The samples are processed in blocks, as in a layer.
    """

    def route(votes, activations, *betas):
        size, inputs = votes.size // len(votes), [votes, activations]
        return route_in_blocks(routing.em, inputs, betas, size, copies=COPIES, keep=True)

    places = (side - 3) // stride + 1
    return em_task(route, images * places**2, 9 * types, parents)
