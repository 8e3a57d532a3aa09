"""Make the C library keep the memory that arrays give back."""

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8  # names of glibc's malloc.h


def keep_memory():
    """Ask glibc to keep freed memory for the next array; return whether it agreed.

    By default a large array is mapped afresh and unmapped when it dies, so every step of a
    training loop pays again for clearing the pages of all its temporaries. Without mapping, and
    without giving back the end of the heap, the pages stay. The process then never shrinks below
    its peak, which is why commands call this and importing minicaps does not. All threads share
    what is kept. On systems other than Linux with glibc nothing happens.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # another C library
        return False
    settings = (M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, -1), (M_ARENA_MAX, 1)
    return all(mallopt(*setting) for setting in settings)
