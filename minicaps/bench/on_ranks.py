"""`mpiexec -n RANKS python -m minicaps.bench.on_ranks ORDER`: time steps and sums of all ranks.

ORDER is a JSON object: {"presets": names, "batch": images, "sizes": bytes, "repeats": number}. Each
rank computes with one thread on its own core. Rank 0 prints the times in JSON.
"""

import json
import os
import statistics
import sys
import time

import numpy as np

from minicaps import Tensor, ops, ranks
from minicaps.bench.cases import Case
from minicaps.cli.allocator import keep_memory
from minicaps.cli.blas import one_blas_thread
from minicaps.models.flat_gradients import FlatGradients
from minicaps.optim import Adam


class SharedStep:
    """Training step whose batch is divided among the ranks.

    The loss of each rank is weighted by its share of the batch, and the gradients of all ranks are
    summed in a single array, so all ranks make the same update.
    """

    def __init__(self, preset: str, batch: int):
        self.model, self.images, self.labels = Case("train", preset, batch).material()
        self.optimizer = Adam(self.model.named_parameters())
        self.share = ranks.share_of(batch)
        self.together = FlatGradients(self.model.parameters(), 0)

    def __call__(self) -> list[float]:
        """Perform the step and return its times: forward, backward, sum and update, in seconds."""
        clock = [time.perf_counter()]
        rows = self.share.rows if self.share else slice(None)
        images, labels = self.images[rows], self.labels[rows]
        self.model.zero_grad()
        with ranks.sharing(self.share):
            routed = self.model(Tensor(images))
            drawn = self.model.reconstruct(routed.poses, labels)
            loss = ops.margin_loss(routed.activations, labels)
            loss = loss + ops.reconstruction_loss(drawn, images)
            if self.share:
                loss = loss * self.share.weight
            clock.append(time.perf_counter())
            loss.backward()
        clock.append(time.perf_counter())
        if self.share:
            self.together.add_up()
        clock.append(time.perf_counter())
        self.optimizer.step()
        clock.append(time.perf_counter())
        return list(np.diff(clock))


def timed_step(preset: str, batch: int, repeats: int) -> dict:
    """Return the median times of a step and of its parts in seconds, after a step to warm up.

    A step lasts until the slowest rank has finished. The sum is timed on the rank that begins last,
    because the others also wait for it.
    """
    step, rows = SharedStep(preset, batch), []
    for turn in range(1 + repeats):
        ranks.barrier()
        taken = step()
        if turn > 0:
            rows.append(taken)
    parts = np.array(ranks.gather(rows))  # (ranks, repeats, 4)
    forward, backward, _, update = np.median(parts, axis=(0, 1)).tolist()
    return {
        "step": float(np.median(parts.sum(axis=2).max(axis=0))),
        "sum": float(np.median(parts[..., 2].min(axis=0))),
        "forward": forward,
        "backward": backward,
        "update": update,
    }


def timed_sum(size: int, repeats: int) -> float:
    """Return the median time of a sum of `size` bytes over all ranks in seconds."""
    values, rows = np.ones(size // 4, np.float32), []
    for turn in range(1 + repeats):
        values[...] = 1
        ranks.barrier()
        start = time.perf_counter()
        ranks.add_up(values)
        if turn > 0:
            rows.append(time.perf_counter() - start)
    return float(np.median(np.max(ranks.gather(rows), axis=0)))


def added_byte(size: int, repeats: int) -> float:
    """Return the median time of adding two arrays of `size` bytes, per byte, in seconds."""
    values, more, rows = np.ones(size // 4, np.float32), np.ones(size // 4, np.float32), []
    for _ in range(1 + repeats):
        start = time.perf_counter()
        np.add(values, more, out=values)
        rows.append(time.perf_counter() - start)
    return statistics.median(rows[1:]) / size


def on_own_core():
    """Bind this rank to one core, if the system can, so that it computes with one thread."""
    if hasattr(os, "sched_setaffinity"):
        free = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {free[ranks.rank() % len(free)]})


def main(order):
    """Time everything in the order; rank 0 prints the times."""
    on_own_core()
    keep_memory()
    n, batch, repeats = ranks.count(), order["batch"], order["repeats"]
    steps = []
    with one_blas_thread():
        for preset in order["presets"]:
            kinds = {"strong": batch, "weak": n * batch} if n > 1 else {"both": batch}
            for kind, whole in kinds.items():
                found = timed_step(preset, whole, repeats)
                steps.append({"preset": preset, "kind": kind, "images": whole, **found})
        sums = [[size, timed_sum(size, 4 * repeats)] for size in order["sizes"]] if n > 1 else []
    if ranks.is_root():
        print(json.dumps({"ranks": n, "steps": steps, "sums": sums}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
