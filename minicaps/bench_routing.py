"""Routings alone, forward and backward to all their inputs: what `minicaps.bench` times of them.

Letters: B batch, I children of N numbers, J parents of D.
"""

import statistics
import tracemalloc
import warnings
from functools import partial
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from minicaps import Tensor, routing
from minicaps.bench_timing import contest, print_machine, print_results, race
from minicaps.nn.matrix import matrix_votes
from minicaps.routing import make_votes, route_in_blocks

BATCH, EM_BATCH = 128, 16  # where none is asked for; EM for EM against PyTorch
POSE = 16  # D
BASE = {"children": 256, "parents": 16, "iterations": 3}  # its votes, 32 MiB, leave most caches
SIZES = {"base": BASE, **{f"2 × {name}": BASE | {name: 2 * n} for name, n in BASE.items()}}
_VECTORS = {
    **{f"agreement, {kind}": partial(routing.agreement, update=kind) for kind in routing.UPDATES},
    **{name: route for name, route in routing.ROUTINGS.items() if name != "agreement"},
}
_FIXED_POINTS = ("agreement, recompute", "agreement, spherical", "distance")
ROUTINGS = {
    **_VECTORS,
    "em": routing.em,
    **{f"{name}, implicit": partial(_VECTORS[name], gradient="implicit") for name in _FIXED_POINTS},
}
# Layers of the networks: (windows, children) of the small matrix capsule network, (I, J, N)
EM_LAYERS, EM_PARENTS = ((36, 72), (16, 144)), 16
DIGITCAPS = (1152, 10, 8)


def compare(options, about):
    """Time routings against PyTorch, print it, and return it as a dictionary for JSON."""
    from minicaps import bench_torch

    report = {**about, **bench_torch.versions(), "contests": []}
    print("Routings, forward and backward to all inputs, float32")
    print_machine(report)
    for title, kind, images, task in contests(options.batch):
        print(f"{title}, {images} images")
        variants = bench_torch.routing_steps(bench_torch.ROUTINGS[kind], task)
        popular = bench_torch.routing_steps(bench_torch.POPULAR_ROUTINGS.get(kind, {}), task)
        found = contest(task.step, variants, popular, images, options.repeats)
        report["contests"].append({"title": title, "batch": images, **found})
        print_results(found)
        print()
    return report


def grow(options, about):
    """Time the routings at several sizes and measure their memory: printed, and as a dictionary."""
    batch = options.batch or BATCH
    report = {**about, "batch": batch, "pose": POSE, "sizes": SIZES}
    base = ", ".join(f"{n} {what}" for what, n in SIZES["base"].items())
    print("Routings, forward and backward, float32; (ratio to base)")
    print(f"base: {batch} samples, {base}, poses of {POSE}")
    print("MiB: peak above what the votes and their gradient take")
    print_machine(report)
    report["table"] = []
    total = len(ROUTINGS) * len(SIZES) * (2 + options.repeats)
    with (
        warnings.catch_warnings(),
        tqdm(total=total, unit="run", leave=False, disable=None) as bar,
    ):
        # So few iterations do not solve for a fixed point, and all of them are done.
        warnings.filterwarnings("ignore", ".* rounds did not find", RuntimeWarning)
        for name in ROUTINGS:
            report["table"] += _grow_one(name, batch, options.repeats, bar)
    _print_table(report["table"])
    return report


def _grow_one(name, batch, repeats, bar):
    """Rows of the table, one for each size, the base first."""
    tasks = {size: growth_task(batch, name, size) for size in SIZES}
    times = race({f"{name}, {size}": tasks[size].step for size in tasks}, repeats, bar, pause=0)
    rows = []
    for (size, task), taken in zip(tasks.items(), times.values(), strict=True):
        row = {"routing": name, "size": size, "milliseconds": taken}
        row["median"] = statistics.median(taken)
        row["mebibytes"] = peak_memory(task)
        base = rows[0] if rows else row
        row["time_ratio"] = row["median"] / base["median"]
        row["memory_ratio"] = row["mebibytes"] / base["mebibytes"]
        rows.append(row)
        bar.update()
    return rows


def _print_table(table):
    """Two lines for each routing: time and memory at every size, with the ratio to the base."""
    sizes = list(SIZES)
    print(f"{'':34}{sizes[0]:>10}" + "".join(f"{size:>18}" for size in sizes[1:]))
    for first in range(0, len(table), len(sizes)):
        base, *others = table[first : first + len(sizes)]
        for label, unit, value, ratio in (
            (base["routing"], "ms", "median", "time_ratio"),
            ("", "MiB", "mebibytes", "memory_ratio"),
        ):
            cells = "".join(f"{row[value]:10,.1f}  ({row[ratio]:4.2f})" for row in others)
            print(f"{label:31}{unit:3}{base[value]:10,.1f}{cells}")


class Task(NamedTuple):
    """What is timed: results = route(*arrays), and the gradients of Σ results · cotangents.

    route takes tensors and returns Routed. There are as many results as cotangents: of vector
    capsules the poses, of EM the activations too. The first array is the one whose order in memory
    matters: twins lay it as they like.
    """

    route: object
    arrays: list
    cotangents: list

    def step(self):
        """Return Σ results · cotangents and its gradients."""
        tensors = [Tensor(x, requires_grad=True) for x in self.arrays]
        routed = self.route(*tensors)
        loss = sum((x * g).sum() for x, g in zip(routed, self.cotangents, strict=False))
        loss.backward()
        return loss.item(), [t.grad for t in tensors]


def growth_task(batch, name, size):
    """The task of one cell of the table: a name of ROUTINGS, a name of SIZES."""
    children, parents, iterations = SIZES[size].values()
    route = partial(ROUTINGS[name], iterations=iterations)
    if name == "em":
        return em_task(route, batch, children, parents)
    rng = np.random.default_rng(0)
    votes = _normal(rng, batch, children, parents, POSE)
    return Task(route, [votes], [_normal(rng, batch, parents, POSE)])


def em_task(route, batch, children, parents, matrices=False):
    """EM routing of given votes, or of those that `matrices` make of 4×4 poses.

    In memory the votes lie as a layer makes them, children last.
    """
    rng = np.random.default_rng(0)
    if matrices:
        first = [np.eye(4, dtype=np.float32) + 0.3 * _normal(rng, children, parents, 4, 4)]
        first += [_normal(rng, batch, children, 4, 4)]
    else:
        first = [_normal(rng, batch, parents, POSE, children).transpose(0, 3, 1, 2)]
    activations = rng.uniform(0.1, 0.9, (batch, children)).astype(np.float32)
    betas = _normal(rng, 2, parents)
    cotangents = [_normal(rng, batch, parents, POSE), _normal(rng, batch, parents)]
    return Task(route, [*first, activations, *betas], cotangents)


def agreement_task(route, batch, children, parents, n):
    """Routing of the votes that the weights (I, J, N, D) of DigitCaps make of capsules (B, I, N).

    In memory the weights lie as the layer keeps them, (I, N, J, D).
    """
    rng = np.random.default_rng(0)
    weight = 0.1 * _normal(rng, children, n, parents, POSE).transpose(0, 2, 1, 3)
    capsules = 0.2 * _normal(rng, batch, children, n)
    return Task(route, [weight, capsules], [_normal(rng, batch, parents, POSE)])


def _normal(rng, *shape):
    return rng.standard_normal(shape, dtype=np.float32)


def contests(batch):
    """Yield (title, kind, images, task) for every task that PyTorch does too.

    Windows are routed as so many samples. batch: images, or None for the defaults.
    """
    images = batch or EM_BATCH
    for windows, children in EM_LAYERS:
        size = f"{windows} windows × {children} children × {EM_PARENTS} parents × {POSE}"
        sizes = images * windows, children, EM_PARENTS
        yield f"EM, votes given, {size}", "em", images, em_task(given_em, *sizes)
        task = em_task(matrix_em, *sizes, matrices=True)
        yield f"EM, votes made of 4×4 poses, {size}", "matrix em", images, task
    images = batch or BATCH
    children, parents, n = DIGITCAPS
    title = f"Agreement, votes made of {children} children of {n}, {parents} parents × {POSE}"
    yield title, "agreement", images, agreement_task(dense_agreement, images, *DIGITCAPS)


# As the layers do it, in blocks and threads.


def given_em(votes, activations, *betas):
    size = 16 * votes.size // len(votes)
    return route_in_blocks(routing.em, [votes, activations], betas, size, keep=True)


def matrix_em(weight, poses, activations, *betas):
    def layer(poses, activations, weight, *betas):
        return routing.em(matrix_votes(poses, weight), activations, *betas)

    size = 16 * weight.size  # a vote has as many numbers as a matrix
    return route_in_blocks(layer, [poses, activations], [weight, *betas], size, keep=True)


def dense_agreement(weight, capsules):
    def layer(capsules, weight):
        return routing.agreement(make_votes(capsules, weight))

    return route_in_blocks(layer, [capsules], [weight], weight.size // weight.shape[2])


def peak_memory(task):
    """Peak of forward and backward in MiB, above what votes and their gradient take."""
    tracemalloc.start()
    try:
        task.step()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return (peak - task.arrays[0].nbytes) / 2**20
