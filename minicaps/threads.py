"""Parallel computation on all cores of the CPU.

NumPy releases Python's global interpreter lock, so threads can share the work; they form one pool
that is reused throughout. BLAS has its own threads, which keep the cores busy while waiting for the
next product and thus slow down the threads of this module. The commands and `minicaps.train.fit`
therefore run inside `minicaps.cli.blas.one_blas_thread`, and a custom training loop should do so
too; importing minicaps alone changes nothing.
"""

import math
import os
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from contextvars import copy_context
from functools import lru_cache

import numpy as np

from minicaps import ranks
from minicaps.backend import array_module

LEAST = 2**18  # minimum work for threads: values, or groups of 32 multiplications
CACHE = 2**16  # values per slice: those of several arrays fit into a core's own cache
AHEAD = 2  # results per core that may be in progress or waiting for the caller
share_products = False  # among our threads; see `minicaps.cli.blas`
_here = threading.local()  # has the attribute `worker` in our threads


def all_cores():
    """Return the number of CPU cores that this process may use, maybe with other ranks."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cores():
    """Return the number of this process's share of the CPU cores, on which its threads run."""
    return max(1, all_cores() // ranks.local()[2])


@lru_cache(maxsize=1)
def _pool(workers, process):
    """Return the thread pool of a process; threads of the parent process do not survive a fork."""
    return ThreadPoolExecutor(workers, "minicaps", lambda: setattr(_here, "worker", True))


def in_threads(function, items):
    """Compute function(item) for all items on all cores, and yield the results in order.

    At most AHEAD results per core are in progress or waiting, so that a slow caller does not run
    out of memory. Threads run in the caller's context (no_grad, numpy.errstate). A nested call from
    one of these threads runs entirely in that thread. No thread is left running after an error or
    if the caller stops early.
    """
    if hasattr(_here, "worker") or cores() == 1:
        yield from map(function, items)
        return
    pool, rest, tasks = _pool(cores(), os.getpid()), deque(items), deque()
    try:
        while rest or tasks:
            with suppress(RuntimeError):  # at Python's exit: compute the rest in this thread
                while rest and len(tasks) < AHEAD * cores():
                    tasks.append(pool.submit(copy_context().run, function, rest[0]))
                    rest.popleft()
            yield tasks[0].result() if tasks else function(rest[0])
            (tasks or rest).popleft()
    finally:
        for task in tasks:
            task.cancel()
        wait(tasks)


def parts(n, most=None, workers=None):
    """Split range(n) among the workers into slices of at most `most` numbers.

    By default, there are as many workers as cores.
    """
    step = max(1, min(-(-n // (workers or cores())), most or n))
    return [slice(k, min(k + step, n)) for k in range(0, n, step)]


def over_parts(function, array, most=CACHE):
    """Call function(part) on all cores for slices that cover the first axis of `array`.

    Each slice contains about `most` values, so that a slice stays in the cache during repeated
    passes. If the array is small or on a GPU, the function is called only once.
    """
    if array_module(array) is not np or array.size < LEAST:
        function(...)
        return
    step = max(1, most * len(array) // array.size)

    def share(part):
        for k in range(part.start, part.stop, step):
            function(slice(k, min(k + step, part.stop)))

    list(in_threads(share, parts(len(array))))  # waits for all


def matmul(a, b, out=None):
    """Compute a @ b on all cores; stacks of matrices are broadcast.

    The array `out` must be neither a nor b.
    """
    xp = array_module(a, b)
    shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    small = math.prod(shape) * a.shape[-1] < 32 * LEAST
    if xp is not np or not share_products or small or a.dtype != b.dtype:
        return xp.matmul(a, b, out=out)
    out = np.empty(shape, a.dtype) if out is None else out
    all_of = slice(None)
    if a.ndim == b.ndim > 2 and len(a) == len(b) >= 8:  # products of a stack
        cut = [(part, part, part) for part in parts(len(a))]
    elif shape[-2] > shape[-1]:  # rows
        cut = [((..., part, all_of), all_of, (..., part, all_of)) for part in parts(shape[-2])]
    else:  # columns
        cut = [(all_of, (..., part), (..., part)) for part in parts(shape[-1])]
    list(in_threads(lambda at: np.matmul(a[at[0]], b[at[1]], out=out[at[2]]), cut))
    return out
