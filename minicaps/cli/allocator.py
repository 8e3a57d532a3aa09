"""Make the C library retain the memory of freed arrays."""

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8  # from glibc's malloc.h


def keep_memory():
    """Ask glibc to keep freed memory for later arrays; return whether the request succeeded.

    By default, glibc maps fresh memory for each large array and unmaps it when the array is freed,
    so the pages of all temporary arrays must be cleared again in every training step. When mapping
    and heap trimming are disabled, the pages are reused. The process then never shrinks below its
    peak, which is why the commands call this function but importing minicaps does not. All threads
    share the kept memory. This function has no effect on systems other than Linux with glibc.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # another C library
        return False
    settings = (M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, -1), (M_ARENA_MAX, 1)
    return all(mallopt(*setting) for setting in settings)
