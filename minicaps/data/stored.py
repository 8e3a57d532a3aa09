"""Images that are read from a file when they are needed, instead of being held in memory.

The file is read, not mapped: if a mapped file is truncated or its disk fails, the process ends
without a message, and the whole map counts against `ulimit -v`. In either case, the system keeps
recently read pages in memory that is free, and processes share them.
"""

import threading
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from minicaps.backend import to_host
from minicaps.errors import DataError

WHITE = np.float32(255)  # the byte that becomes 1
BLOCK = 2**24  # bytes of float32 images that are read at once
FEW = 64  # images that are read at once, however large they are


class Record(NamedTuple):
    """Place and form of an image in a file.

    at: first byte. channels: 1 or 3. floats: whether pixels are float32 rather than bytes. crc:
    CRC-32 of the stored bytes. low, high: smallest and largest pixel.
    """

    at: int
    channels: int
    floats: bool
    crc: int
    low: float
    high: float

    def length(self, size) -> int:
        """Return the number of bytes for an image of a size (height, width)."""
        return self.channels * size[0] * size[1] * (4 if self.floats else 1)


def encoded(image) -> tuple[bytes, bool]:
    """Return a float32 image (C, H, W) as bytes to store, and whether they hold float32.

    Pixels are stored as bytes if these divided by 255 give the same bits. This holds for images of
    8 bits, unless they were resized, converted to gray or laid over a background; bytes would round
    all others, and training would differ from training on images in memory.
    """
    pixels = np.rint(image * 255).astype(np.uint8)
    if (pixels / WHITE).tobytes() == image.tobytes():
        return pixels.tobytes(), False
    return image.tobytes(), True


class PixelFile:
    """File with images of one size (height, width), described by a sequence of records.

    channels: 3 if even gray images alone are read as color images, or None.
    """

    def __init__(self, path, records, size, channels=None):
        self.path, self.size, self._lock = path, tuple(size), threading.Lock()
        self.channels = channels or max((record.channels for record in records), default=1)
        columns = list(zip(*records, strict=True)) or [()] * len(Record._fields)
        kinds = (np.int64, np.uint8, bool, np.uint32, np.float32, np.float32)
        columns = [np.array(each, kind) for each, kind in zip(columns, kinds, strict=True)]
        self._at, self._channels, self._floats, self._crc, self.low, self.high = columns
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 (stays open as long as the object)

    def __del__(self):
        if hasattr(self, "_file"):
            self._file.close()

    def read(self, k, out):
        """Read image number k into a float32 array (channels, height, width).

        The channel of a gray image is repeated. Raises `DataError` if the file is damaged.
        """
        floats = self._floats[k]
        shape = (int(self._channels[k]), *self.size)
        length = shape[0] * shape[1] * shape[2] * (4 if floats else 1)
        content = self.content(int(self._at[k]), length)
        if zlib.crc32(content) != self._crc[k]:
            raise DataError(
                f"{self.path}, which holds decoded images, is damaged or has changed: run the"
                " command again to decode the damaged images once more"
            )
        if floats:
            out[...] = np.frombuffer(content, np.float32).reshape(shape)
        else:
            np.divide(np.frombuffer(content, np.uint8).reshape(shape), WHITE, out=out[: shape[0]])
            out[shape[0] :] = out[0]

    def content(self, at, length) -> bytes:
        """Return `length` bytes from the place `at`, or fewer if the file ends before."""
        try:
            with self._lock:
                self._file.seek(at)
                return self._file.read(length)
        except OSError as error:
            raise DataError(f"cannot read {self.path}: {error.strerror or error}") from None


class Stored:
    """Images in a file that stand for a float32 array (n, channels, height, width) in [0, 1].

    An index, a slice or an array of indices reads these images into memory. Iterating reads one
    image at a time. `np.asarray` reads all.

    file: a `PixelFile`. rows (n,): numbers of the images in the file. inversions: how often light
    and dark are swapped.
    """

    ndim, dtype = 4, np.dtype(np.float32)

    def __init__(self, file: PixelFile, rows: np.ndarray, inversions: int = 0):
        self.file, self.rows, self.inversions = file, rows, inversions

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape (n, channels, height, width) of the array."""
        return (len(self), self.file.channels, *self.file.size)

    @property
    def nbytes(self) -> int:
        """Memory that the array would need, in bytes."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def __getitem__(self, which: Any) -> np.ndarray:
        which, *rest = which if isinstance(which, tuple) else (which,)
        rows = self.rows[which]
        images = np.empty((np.size(rows), *self.shape[1:]), self.dtype)
        for row, image in zip(np.ravel(rows), images, strict=True):
            self.file.read(row, image)
        for _ in range(self.inversions):
            np.subtract(1, images, out=images)
        images = images.reshape(*np.shape(rows), *self.shape[1:])
        return images[(*[slice(None)] * np.ndim(rows), *rest)] if rest else images

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[k] for k in range(len(self)))

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return np.asarray(self[:], dtype)

    def min(self) -> float:
        """Return the smallest pixel, without reading the images."""
        return float(min(self._ends()))

    def max(self) -> float:
        """Return the largest pixel, without reading the images."""
        return float(max(self._ends()))

    def _ends(self):
        ends = self.file.low[self.rows].min(), self.file.high[self.rows].max()
        for _ in range(self.inversions):
            ends = tuple(1 - end for end in ends)
        return ends

    def some(self, which) -> "Stored":
        """Select images by an index array, a mask or a slice, without reading them."""
        which = which if isinstance(which, slice) else np.asarray(which)
        return Stored(self.file, self.rows[which], self.inversions)

    def take(self, which) -> "np.ndarray | Stored":
        """Select images as `some` does, but read them if they are few."""
        chosen = self.some(which)
        return chosen[:] if len(chosen) <= max(FEW, chosen._at_once()) else chosen

    def inverted(self) -> "Stored":
        """Swap light and dark."""
        return Stored(self.file, self.rows, self.inversions + 1)

    def blocks(self) -> Iterator[slice]:
        """Divide the images into slices, each small enough to be read at once."""
        step = self._at_once()
        return (slice(start, start + step) for start in range(0, len(self), step))

    def _at_once(self):
        """Return the number of images in a block."""
        return max(1, BLOCK * len(self) // max(1, self.nbytes))


def on_host(images):
    """Return images on the host; those in a file remain there."""
    return images if isinstance(images, Stored) else to_host(images)


def on_device(images, device):
    """Copy images to a `minicaps.backend.Device`; those in a file are read block by block."""
    if not isinstance(images, Stored):
        return device.put(images)
    there = device.xp.empty(images.shape, dtype=np.float32)
    for which in images.blocks():
        there[which] = device.put(images[which])
    return there


def joined(parts):
    """Concatenate images. Parts of one file remain there; all others are read into an array."""
    stored = [part for part in parts if isinstance(part, Stored)]
    if len(stored) == len(parts) and len({(part.file, part.inversions) for part in stored}) == 1:
        rows = np.concatenate([part.rows for part in stored])
        return Stored(stored[0].file, rows, stored[0].inversions)
    return np.concatenate([part[:] for part in parts])
