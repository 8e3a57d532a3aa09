"""Cache of decoded images, for custom data that takes a large share of the memory.

Each source and each way of reading it has a folder in the cache with three files: `about.json`
names the source and the way of reading; `images` holds the pixels of all images, one after the
other; and `index` has a line for each image file that was decoded, with its size, its time of
change, and the place and the checksum of each of its images. A line is written after its pixels, so
decoding can stop at any time: a file that has a line is not decoded again unless it has changed or
its pixels are damaged. Only new pixels are appended; a process that reads others is not disturbed.
"""

import hashlib
import json
import os
import shutil
import time
import warnings
import zlib
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import numpy as np

from minicaps import ranks
from minicaps.data.download import cache_folder
from minicaps.data.own.files import BadFiles, for_each_file, name_of
from minicaps.data.stored import PixelFile, Record, Stored, encoded
from minicaps.errors import CheckpointError, DataError
from minicaps.storage import locked, results_folder, write_json, writing

ENVIRONMENT = "MINICAPS_CACHE"  # environment variable with the folder of the cache
SHARE = 1 / 4  # of the memory; copies made by splitting take as much again, up to twice
FORMAT = 1  # of the files in the cache, and of decoding
ELSEWHERE = f"name a folder with more space in {ENVIRONMENT}, or choose a smaller --size"
CLEAR = "python -m minicaps.data cache --clear"


def root() -> Path:
    """Return the folder of the cache."""
    told = os.environ.get(ENVIRONMENT)
    return Path(told).absolute() if told else cache_folder() / "images"


def too_large(count, channels, size) -> bool:
    """Return whether images take more than the fraction `SHARE` of the memory as float32."""
    from minicaps.cli.measuring import whole_memory

    memory = whole_memory()
    return memory is not None and 4 * count * channels * size[0] * size[1] > SHARE * memory


class ImageCache:
    """Cache of the images of one source, read in one way.

    source: path of the folder or archive. target: `Target` with a size. frames: as in `Reading`.
    """

    def __init__(self, source, target, frames):
        import PIL

        self.source, self.size = Path(source).resolve(), tuple(target.size)
        self.channels = target.channels
        self.about = {
            "source": os.fsencode(self.source).decode(errors="backslashreplace"),
            "size": list(self.size),
            "channels": 1 if target.channels == 1 else None,  # color is made from gray when reading
            "fill": target.fill,
            "frames": frames,
            "decoder": [FORMAT, PIL.__version__],
        }
        self.folder = self._place()
        self._checked = {}  # {name: (records, whether their pixels have their checksums)}
        if self.source in (resolved := self.folder.resolve()).parents:
            raise DataError(
                f"the cache {resolved.parent} lies inside the data folder {self.source}: name"
                f" another folder in {ENVIRONMENT}"
            )

    def _place(self):
        key = hashlib.blake2b(json.dumps(self.about).encode(), digest_size=6).hexdigest()
        return root() / f"{name_of(self.source)[:60]}-{key}"

    @property
    def pixels(self):
        return self.folder / "images"

    @property
    def index(self):
        return self.folder / "index"

    def read(self, folder, names, decode) -> list[list[Record]]:
        """Return the records of each file, which is decoded if that has not been done.

        folder: folder that the names are relative to. decode: returns the images (C, H, W) in the
        file with the given path. Files that it cannot read raise `BadFiles`, after all others.
        """
        stamps = {name: _stamp(folder / name) for name in names}
        self._take_gray_as_it_is(stamps)
        known, faults = self._known(stamps), None
        if len(known) < len(names):
            with self._writing():
                known = self._known(stamps)  # another process may have decoded more
                try:
                    known |= self._decoded(folder, names, known, stamps, decode)
                except BadFiles as bad:
                    faults = bad
                    known |= dict(bad.results)
        with suppress(OSError):  # a read-only cache
            os.utime(self.folder / "about.json")  # the last use
        found = [known[name] for name in names if name in known]
        if faults:
            raise BadFiles(faults.reasons, found)
        return found

    def _take_gray_as_it_is(self, stamps):
        """Find gray images that were decoded in their own channels, if gray ones are wanted."""
        if self.channels != 1:
            return
        converted = self.about, self.folder
        self.about = self.about | {"channels": None}
        self.folder = self._place()
        lines = _lines(self.index)
        for name, stamp in stamps.items():
            known, records = lines.get(name, (None, ()))
            if known != stamp or any(record.channels != 1 for record in records):
                self.about, self.folder = converted
                return

    def images(self, records) -> tuple[Stored, int]:
        """Return the images of the records, and how many of them are gray among color images."""
        file = PixelFile(self.pixels, records, self.size, self.channels)
        grey = 0 if self.channels else sum(record.channels < file.channels for record in records)
        return Stored(file, np.arange(len(records))), grey

    def note(self, images) -> str:
        """Tell the user how many images are read from where, and how large they are."""
        stored = self.pixels.stat().st_size
        return (
            f"{len(images):,} images, which would take {_gigabytes(images.nbytes)} of memory, are"
            f" read from {self.folder} ({_gigabytes(stored)}), where later commands find this size;"
            f" {CLEAR} removes them"
        )

    def _known(self, stamps):
        """Return {name: records} for the files that are unchanged and whose pixels are sound."""
        lines = {name: line for name, line in _lines(self.index).items() if name in stamps}
        known = {name: records for name, (stamp, records) in lines.items() if stamp == stamps[name]}
        checked = {name for name, each in known.items() if self._verdict(name)[0] == each}
        unsure = {name: each for name, each in known.items() if name not in checked}
        damaged = self._damaged(unsure)  # in the order of the file
        if damaged:
            warnings.warn(
                f"{len(damaged):,} of {len(known):,} files in the cache {self.folder} are damaged:"
                " they are decoded again",
                stacklevel=2,
            )
        for name, records in unsure.items():
            self._checked[name] = records, name not in damaged
        return {name: records for name, records in known.items() if self._verdict(name)[1]}

    def _verdict(self, name):
        return self._checked.get(name, (None, False))

    def _damaged(self, known):
        """Return the names of the files whose pixels do not have their checksum, or are missing."""
        from tqdm import tqdm

        if not known:
            return set()
        try:
            file = PixelFile(self.pixels, (), self.size)
        except OSError:
            return set(known)
        damaged = set()
        bar = {"desc": "checking", "unit": " files", "delay": 1, "leave": False, "disable": None}
        for name, records in tqdm(known.items(), **bar):
            for record in records:
                content = file.content(record.at, record.length(self.size))
                if zlib.crc32(content) != record.crc:
                    damaged.add(name)
        return damaged

    @contextmanager
    def _writing(self):
        """Hold the folder's lock, and wait for it if another process decodes the same images."""
        results_folder(self.folder, ELSEWHERE)
        with ExitStack() as stack:
            waiting = False
            while True:
                try:
                    stack.enter_context(locked(self.folder))
                    break
                except CheckpointError:
                    if not waiting and ranks.count() == 1:  # otherwise, probably another rank
                        warnings.warn(
                            f"another process is decoding {self.source}: waiting until it is done",
                            stacklevel=2,
                        )
                    waiting = True
                    time.sleep(0.2)
            if not (self.folder / "about.json").exists():
                write_json(self.folder / "about.json", self.about)
            yield

    def _decoded(self, folder, names, known, stamps, decode):
        """Decode the files that are not known, append them, and return {name: records}."""
        with writing(self.folder, ELSEWHERE):
            end = self._end(known)
            appended = _Appended(self.pixels, self.index, end)
        missing = {folder / name: name for name in names if name not in known}
        done = 0

        def store(path):
            nonlocal done
            images, name = decode(path), missing[path]
            with writing(self.folder, ELSEWHERE):
                records = appended.add(name, stamps[name], images)
            done += 1
            if done & (done - 1) == 0:  # 1, 2, 4, …
                self._check_space((appended.end - end) / done * (len(missing) - done))
            return name, records

        with appended:
            return dict(for_each_file(folder, missing.values(), "decoding", store))

    def _end(self, known):
        """Return the place where images are appended; start anew if most pixels are not needed."""
        lengths = (r.length(self.size) for records in known.values() for r in records)
        lines = _lines(self.index)
        end = max(
            (r.at + r.length(self.size) for _, records in lines.values() for r in records),
            default=0,
        )
        if end <= 2 * sum(lengths):
            return end
        for path in (self.pixels, self.index):  # others may still read the old files
            path.unlink(missing_ok=True)
        known.clear()
        return 0

    def _check_space(self, needed):
        """Raise `CheckpointError` if the images that are left would not fit on the disk."""
        free = shutil.disk_usage(self.folder).free
        if needed > free:
            raise CheckpointError(
                f"the decoded images of {self.source} need {_gigabytes(needed)} more in"
                f" {self.folder}, but {_gigabytes(free)} is free: {ELSEWHERE}"
            )


class _Appended:
    """Files to which images and their lines in the index are appended.

    end: place after the last image that has a line.
    """

    def __init__(self, pixels, index, end):
        self.end = end
        with ExitStack() as opened:
            self.pixels = opened.enter_context(open(pixels, "r+b" if end else "wb", buffering=0))
            self.index = opened.enter_context(open(index, "ab", buffering=0))
            self.pixels.truncate(end)
            self.pixels.seek(end)
            if self.index.tell() and not index.read_bytes().endswith(b"\n"):
                _write(self.index, b"\n")  # after a line that was cut off
            self._opened = opened.pop_all()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._opened.close()

    def add(self, name, stamp, images) -> list[Record]:
        """Append the images of a file, then its line, and return the records of the images."""
        records = []
        for image in images:
            content, floats = encoded(image)
            ends = float(image.min()), float(image.max())
            records.append(Record(self.end, len(image), floats, zlib.crc32(content), *ends))
            _write(self.pixels, content)
            self.end += len(content)
        body = json.dumps([name, stamp, records]).encode("ascii")
        _write(self.index, b"%08x %s\n" % (zlib.crc32(body), body))
        return records


def _stamp(path):
    """Return [size, time of change] of a file; [0, 0] if it cannot be accessed."""
    try:
        found = os.stat(path)
    except OSError:
        return [0, 0]
    return [found.st_size, found.st_mtime_ns]


def _lines(index):
    """Return {name: (stamp, records)} for the intact lines of an index; the last of a name counts.

    Lines that cannot be read are left out, so their files are decoded again.
    """
    found = {}
    try:
        lines = index.read_bytes().splitlines()
    except OSError:
        return found
    for line in lines:
        checksum, _, body = line.partition(b" ")
        if body and checksum == b"%08x" % zlib.crc32(body):
            name, stamp, records = json.loads(body)
            found[name] = stamp, [Record(*record) for record in records]
    return found


def _write(file, content):
    """Write all bytes to an unbuffered file, which may take several calls."""
    content = memoryview(content)
    while content:
        content = content[file.write(content) :]


def _gigabytes(count):
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"


# ---- the command


def listing() -> list[tuple[Path, dict, int, float]]:
    """Return (folder, contents of about.json, bytes, time of last use) for each cached source."""
    found = []
    for about in sorted(root().glob("*/about.json")):
        try:
            size = sum(path.stat().st_size for path in about.parent.iterdir())
            used = about.stat().st_mtime
            told = json.loads(about.read_text())
            told = {"source": str(told["source"]), "size": [int(n) for n in told["size"][:2]]}
        except OSError:  # it is being removed
            continue
        except (ValueError, LookupError, TypeError):
            told = {"source": f"{about} (damaged)", "size": [0, 0]}
        found.append((about.parent, told, size, used))
    return found


def clear(folder):
    """Remove a cached source. Raises `CheckpointError` if a process is decoding it."""
    with ExitStack() as held:
        try:
            held.enter_context(locked(folder))
        except CheckpointError:
            raise CheckpointError(
                f"another process is decoding images in {folder}: wait until it is done"
            ) from None
        try:
            shutil.rmtree(folder)
        except OSError as error:
            raise CheckpointError(f"cannot remove {folder}: {error.strerror or error}") from error
