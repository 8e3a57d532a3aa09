"""Work on all cores of the CPU.

NumPy computes without Python's lock, so threads share the work. They are the same few threads all
the time. BLAS has threads of its own, which after a product wait for the next one with the core
busy, and hold up ours: a command calls `one_blas_thread`; importing minicaps changes nothing.
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

from minicaps.backend import array_module

LEAST = 2**18  # numbers, or 32 multiplications each, that are worth a thread
CACHE = 2**16  # numbers of several arrays that a core's own cache holds
AHEAD = 2  # results for each core that may be in work, or wait to be taken
_ours = False  # whether the work of products is ours to share
_here = threading.local()  # has .worker in a thread of ours


def cores():
    """Number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@lru_cache(maxsize=1)
def _pool(workers, process):
    """The threads; those of a parent process do not live on in a fork."""
    return ThreadPoolExecutor(workers, "minicaps", lambda: setattr(_here, "worker", True))


def in_threads(function, items):
    """Yield function(item) for all items, in their order, computed on all cores.

    At most AHEAD results a core are in work or wait, so that a slow caller's memory does not fill
    with them. A thread sees the caller's context (no_grad, numpy.errstate). What a thread calls
    here it does itself. After an error, or where the caller stops early, nobody goes on writing.
    """
    if hasattr(_here, "worker") or cores() == 1:
        yield from map(function, items)
        return
    pool, rest, tasks = _pool(cores(), os.getpid()), deque(items), deque()
    try:
        while rest or tasks:
            with suppress(RuntimeError):  # Python is on its way out: what is left is done here
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
    """Cut range(n) into slices, one for each core or worker, none longer than `most`."""
    step = max(1, min(-(-n // (workers or cores())), most or n))
    return [slice(k, min(k + step, n)) for k in range(0, n, step)]


def over_parts(function, array):
    """Call function(part) with slices that make up the first axis of `array`, on all cores.

    A slice has about CACHE numbers, so that several passes find them in the cache. Of a small
    array, or one of a GPU, it is called once.
    """
    if array_module(array) is not np or array.size < LEAST:
        function(...)
        return
    step = max(1, CACHE * len(array) // array.size)

    def share(part):
        for k in range(part.start, part.stop, step):
            function(slice(k, min(k + step, part.stop)))

    for _ in in_threads(share, parts(len(array))):
        pass


def matmul(a, b, out=None):
    """a @ b on all cores: matrices, or stacks of them, that broadcast. out: neither a nor b."""
    xp = array_module(a, b)
    shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    small = math.prod(shape) * a.shape[-1] < 32 * LEAST
    if xp is not np or not _ours or small or a.dtype != b.dtype:
        return xp.matmul(a, b, out=out)
    out = np.empty(shape, a.dtype) if out is None else out
    all_of = slice(None)
    if a.ndim == b.ndim > 2 and len(a) == len(b) >= 8:  # products of a stack
        cut = [(part, part, part) for part in parts(len(a))]
    elif shape[-2] > shape[-1]:  # rows
        cut = [((..., part, all_of), all_of, (..., part, all_of)) for part in parts(shape[-2])]
    else:  # columns
        cut = [(all_of, (..., part), (..., part)) for part in parts(shape[-1])]
    for _ in in_threads(lambda at: np.matmul(a[at[0]], b[at[1]], out=out[at[2]]), cut):
        pass
    return out


def one_blas_thread():
    """Limit BLAS to one thread, for good, since our threads share its work already."""
    from threadpoolctl import threadpool_limits

    global _ours
    threadpool_limits(1, user_api="blas")
    _ours = True
