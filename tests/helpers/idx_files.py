"""Write IDX files for the tests, independently of the reader, and tiny data sets of such files."""

import gzip
import hashlib
import struct

import numpy as np

from minicaps.data import download

FILES = tuple(download.SOURCES["mnist"].md5)
TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS = FILES
CLOSED = "http://127.0.0.1:9/"  # no server listens there

CODES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}


def idx_bytes(array):
    array = np.asarray(array)
    header = struct.pack(">BBBB", 0, 0, CODES[array.dtype.str[1:]], array.ndim)
    sizes = struct.pack(f">{array.ndim}I", *array.shape)
    return header + sizes + array.astype(array.dtype.newbyteorder(">")).tobytes()


def md5(content):
    return hashlib.md5(content).hexdigest()


def zipped(content):
    return gzip.compress(content, mtime=0)


def isolate(monkeypatch, folder):
    """Use empty folders in `folder` as the cache and Debian's folder, no messages and no proxy."""
    monkeypatch.delenv(download.ENVIRONMENT, raising=False)
    monkeypatch.setattr(download, "cache_folder", lambda: folder / "cache")
    monkeypatch.setattr(download, "DEBIAN", folder / "debian")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    return folder


def arrays_of(seed):
    random = np.random.default_rng(seed)
    return {
        TRAIN_IMAGES: random.integers(0, 256, (20, 4, 5), dtype=np.uint8),
        TRAIN_LABELS: random.integers(0, 10, 20, dtype=np.uint8),
        TEST_IMAGES: random.integers(0, 256, (7, 4, 5), dtype=np.uint8),
        TEST_LABELS: random.integers(0, 10, 7, dtype=np.uint8),
    }


class Tiny:
    """Register a source of four small files under the name of a real one."""

    def __init__(self, monkeypatch, name, arrays):
        self.name, self.arrays = name, arrays
        self.contents = {file: idx_bytes(array) for file, array in arrays.items()}
        self.monkeypatch = monkeypatch
        self.set_mirrors(CLOSED)

    def set_mirrors(self, *mirrors):
        sums = {
            file: (md5(zipped(content)), md5(content)) for file, content in self.contents.items()
        }
        source = download.Source("tiny", tuple("0123456789"), (20, 7), mirrors, sums)
        self.monkeypatch.setitem(download.SOURCES, self.name, source)

    def write(self, folder, pack=zipped, suffix=".gz"):
        folder.mkdir(parents=True, exist_ok=True)
        for file, content in self.contents.items():
            (folder / f"{file}{suffix}").write_bytes(pack(content))
