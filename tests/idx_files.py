"""Writes IDX files for the tests, independently of the reader."""

import gzip
import struct

import numpy as np

CODES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}


def idx_bytes(array):
    array = np.asarray(array)
    header = struct.pack(">BBBB", 0, 0, CODES[array.dtype.str[1:]], array.ndim)
    sizes = struct.pack(f">{array.ndim}I", *array.shape)
    return header + sizes + array.astype(array.dtype.newbyteorder(">")).tobytes()


def zipped(content):
    return gzip.compress(content, mtime=0)
