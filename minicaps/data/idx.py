"""Reader for IDX files, the file format of MNIST.

An IDX file consists of a magic number, the sizes of the dimensions, and big-endian numbers. Bytes 0
and 1 are zero, byte 2 encodes the data type, and byte 3 is the number of dimensions. Each size is a
4-byte unsigned integer. The format is described by LeCun, Cortes and Burges in "The MNIST database
of handwritten digits".
"""

import gzip
import math
import zlib
from pathlib import Path

import numpy as np

from minicaps.errors import DataError

TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path) -> np.ndarray:
    """Read the array in an IDX file, which may be gzipped, and convert it to native byte order.

    If the file is invalid, a `DataError` gives its name and describes the problem.
    """
    return parse_idx(read_bytes(path), path)


def read_bytes(path) -> bytes:
    """Read a file, and decompress it if its content is gzipped, regardless of its name."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None
    if not content:
        raise DataError(f"{path} is empty (0 bytes)")
    if content[:2] != b"\x1f\x8b":
        return content
    try:
        return gzip.decompress(content)
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(
            f"{path} is a damaged gzip file of {len(content)} bytes ({error}): get a new copy"
        ) from None


def parse_idx(content: bytes, where) -> np.ndarray:
    """Parse the bytes of an IDX file into an array.

    Error messages mention `where`, the origin of the bytes.
    """
    kind, dimensions = content[2:4] if len(content) >= 4 else (None, None)
    if content[:2] != b"\0\0" or kind not in TYPES or not dimensions:
        raise DataError(
            f"{where} is not an IDX file: it starts with the bytes {content[:4].hex(' ')}; "
            f"expected 00 00, a type ({', '.join(f'{code:02x}' for code in TYPES)}), "
            "and the number of dimensions"
        )
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise DataError(
            f"{where} is truncated: expected a header of {start} bytes, got {len(content)} bytes"
        )
    shape = tuple(int(size) for size in np.frombuffer(content, ">u4", dimensions, offset=4))
    dtype = np.dtype(TYPES[kind])
    expected = start + math.prod(shape) * dtype.itemsize
    if len(content) != expected:
        fault = "is truncated" if len(content) < expected else "has trailing bytes"
        raise DataError(
            f"{where} {fault}: its header specifies {expected} bytes "
            f"({'×'.join(map(str, shape))} numbers of {dtype.itemsize} bytes), got {len(content)}"
        )
    try:
        numbers = np.frombuffer(content, dtype, offset=start).reshape(shape)
    except ValueError:  # too many dimensions, or empty and yet too large
        raise DataError(f"{where} describes an impossible array of shape {shape}") from None
    return numbers.astype(dtype.newbyteorder("="))
