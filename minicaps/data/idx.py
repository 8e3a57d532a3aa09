"""Reader for IDX files, the file format of MNIST.

An IDX file consists of a magic number, the sizes of the dimensions, and big-endian numbers. Bytes 0
and 1 are zero, byte 2 encodes the data type, and byte 3 is the number of dimensions. Each size is a
4-byte unsigned integer. The format is described by LeCun, Cortes and Burges in "The MNIST database
of handwritten digits".
"""

import gzip
import math
import zlib

import numpy as np

from minicaps.errors import DataError

CHUNK = 2**20  # bytes read at a time
TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path) -> np.ndarray:
    """Read the array in an IDX file, which may be gzipped, and convert it to native byte order.

    If the file is invalid, a `DataError` gives its name and describes the problem.
    """
    return parse_idx(read_bytes(path), path)


def read_bytes(path) -> bytearray:
    """Read the bytes that the header of an IDX file announces, and one more if there are more.

    A file whose content is gzipped, regardless of its name, is decompressed only that far: a small
    file can contain gigabytes. Of a file that is not IDX, only the beginning is read.
    """
    try:
        with open(path, "rb") as file:
            if not (start := file.peek(2)):
                raise DataError(f"{path} is empty (0 bytes)")
            if start[:2] != b"\x1f\x8b":
                return _announced(file)
            with gzip.GzipFile(fileobj=file) as unpacked:
                return _announced(unpacked)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is a damaged gzip file ({error}): get a new copy") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None


def _announced(file):
    content = bytearray(file.read(4))
    content += file.read(4 * content[3] if len(content) == 4 else 0)
    if (described := _described(content)) is not None:
        most = described[2] + 1
        while len(content) < most and (more := file.read(min(CHUNK, most - len(content)))):
            content += more
    return content


def _described(content):
    """Return the shape, dtype and bytes in all that a complete header describes, or else None."""
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in TYPES or not content[3]:
        return None
    start = 4 + 4 * content[3]
    if len(content) < start:
        return None
    shape = tuple(int(size) for size in np.frombuffer(content, ">u4", content[3], offset=4))
    dtype = np.dtype(TYPES[content[2]])
    return shape, dtype, start + math.prod(shape) * dtype.itemsize


def parse_idx(content: bytes | bytearray, where) -> np.ndarray:
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
    if (described := _described(content)) is None:
        raise DataError(
            f"{where} is truncated: expected a header of {start} bytes, got {len(content)} bytes"
        )
    shape, dtype, expected = described
    if len(content) != expected:
        less = len(content) < expected
        raise DataError(
            f"{where} {'is truncated' if less else 'has trailing bytes'}: its header specifies"
            f" {expected} bytes ({'×'.join(map(str, shape))} numbers of {dtype.itemsize} bytes),"
            f" {f'got {len(content)}' if less else 'but it has more'}"
        )
    try:
        numbers = np.frombuffer(content, dtype, offset=start).reshape(shape)
    except ValueError:  # too many dimensions, or empty and yet too large
        raise DataError(f"{where} describes an impossible array of shape {shape}") from None
    return numbers.astype(dtype.newbyteorder("="))
