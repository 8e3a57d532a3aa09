"""Limit BLAS to one thread while minicaps shares its work among its own threads."""

import threading
from contextlib import contextmanager

from minicaps import threads


class _Blocks:
    """The number of blocks that are running, in all threads, and their common limit."""

    lock, count, limit = threading.Lock(), 0, None


@contextmanager
def one_blas_thread():
    """Limit BLAS to one thread inside this block.

    Threads of BLAS keep their cores busy while they wait for the next product, which slows down the
    threads of minicaps. Blocks may be nested and may run in several threads: the original limits
    return when the last block ends.
    """
    from threadpoolctl import threadpool_limits

    with _Blocks.lock:
        if not _Blocks.count:
            _Blocks.limit = threadpool_limits(1, user_api="blas")
            threads.share_products = True
        _Blocks.count += 1
    try:
        yield
    finally:
        with _Blocks.lock:
            _Blocks.count -= 1
            if not _Blocks.count:
                threads.share_products = False
                _Blocks.limit.restore_original_limits()
