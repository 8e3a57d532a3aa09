"""Readers for custom data in folders: one folder per class, or images with a table of labels."""

from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import islice

import numpy as np

from minicaps.data.dataset import Split
from minicaps.data.images import (
    SeveralFrames,
    check_memory,
    frame_count,
    picture_size,
    read_frames,
    read_picture,
)
from minicaps.data.own.arrays import DARK
from minicaps.data.own.cache import ImageCache, too_large
from minicaps.data.own.faults import Faults
from minicaps.data.own.files import for_each_file, notes_on_hidden
from minicaps.data.own.found import PARTS, Found
from minicaps.data.own.listing import listed
from minicaps.data.own.sizing import sized
from minicaps.errors import DataError


def from_folders(root, entries, target, reading, source):
    """Implement `minicaps.data.own.read` for a folder with these visible entries.

    source: the folder itself, or the archive that it was unpacked from.
    """
    faults = Faults(reading.skip_bad)
    listing = listed(root, entries, target, faults)
    names = list(listing.labels)
    target, names, resized = _sized(root, names, target, faults)
    cache = _cache(root, names, target, reading.frames, source)
    files, names = _pictures(root, names, target, faults, reading.frames, cache)
    faults.check()
    pictures = [picture for frames in files for picture in frames]
    file_of = [name for name, frames in zip(names, files, strict=True) for _ in frames]
    groups = None
    if len(pictures) > len(files):
        groups = np.repeat(np.arange(len(files)), [len(frames) for frames in files])
        names = [name for pair in zip(names, files, strict=True) for name in _frame_names(*pair)]
    images, grey = cache.images(pictures) if cache else _together(pictures)
    if images.max() < DARK:
        raise DataError(
            f"the brightest pixel of all {len(images):,} images in {root} is {images.max():.3g},"
            " where white is 1: either they are black, or their pixels use fewer bits than the file"
            " format provides; scale them so that white is the largest number"
        )
    notes = [
        *notes_on_hidden(listing.hidden),
        *faults.notes(),
        *listing.notes(),
        *resized,
        *([cache.note(images)] if cache else []),
    ]
    if grey:
        notes.append(
            f"{grey:,} of {len(images):,} images are grayscale: their channel is used for all"
            " colors"
        )
    labels = np.array([listing.labels[file] for file in file_of])
    whole = Split(images, labels, names=np.array(names), groups=groups)
    parts = {"all": whole}
    if listing.parts:
        part_of = np.array([listing.parts[file] for file in file_of])
        here = [part for part in PARTS if part in part_of]
        parts = {part: whole.take(part_of == part) for part in here}
    return Found(parts, listing.class_names, tuple(notes), tuple(faults.skipped))


def _together(pictures):
    """Return images (n, C, H, W) as one array, and how many of them are gray among color images."""
    channels = max(len(picture) for picture in pictures)
    images = np.empty((len(pictures), channels, *pictures[0].shape[1:]), dtype=np.float32)
    grey = sum(len(picture) < channels for picture in pictures)
    for k, picture in enumerate(pictures):
        images[k] = picture  # broadcasting repeats the channel of a grayscale image
        pictures[k] = None  # frees its memory
    return images, grey


def _frame_names(name, frames):
    return [f"{name}#{k}" for k in range(len(frames))] if len(frames) > 1 else [name]


def _sized(root, names, target, faults):
    """Return a target with a size (None after a fault), the usable files, and notes on the size."""
    if target.size not in (None, "auto"):
        return target, names, ()
    choose = partial(_common_size, root) if target.size is None else partial(_sizes, root)
    found, names = faults.usable(names, choose)
    if target.size is None or found is None:
        return replace(target, size=found), names, ()
    target, notes = sized(target, found)
    return target, names, notes


def _cache(root, names, target, frames, source):
    """Return a cache for images that are too large to be held in memory, and otherwise None."""
    if target.size is None:  # after a fault
        return None
    count = len(names)
    if frames == "all":
        count = sum(frame_count(root / name) for name in names)
    if not too_large(count, target.channels or 3, target.size):
        return None
    check_memory(1, target.channels or 3, target.size)  # batches are in memory all the same
    return ImageCache(source, target, frames)


def _pictures(root, names, target, faults, frames, cache):
    """Read images, and return a list for each file that is usable, and the names of these files.

    The list of a file contains an array (C, H, W) for each of its frames that is read, or its
    record in the cache.
    """
    pictures, reader = [], _reader(target, frames)
    if cache is not None and target.channels == 3:
        reader = _reader(replace(target, channels=None), frames)  # the cache repeats the channel
    if target.size is not None and cache is None:
        read = partial(for_each_file, root, verb="reading", function=reader)
        pictures, names = faults.each(names, read)
    elif cache is not None:
        pictures, names = faults.each(names, partial(cache.read, root, decode=reader))
    if not names and not faults.found:
        faults.add(f"{root} contains no image that can be used")
    return pictures, names


def _reader(target, frames):
    def read(path):
        if frames is not None:
            chosen = islice(read_frames(path), 1 if frames == "first" else None)
            return [target.fit(picture) for picture in chosen]
        try:
            return [target.fit(read_picture(path))]
        except SeveralFrames as error:
            raise DataError(f"{error}, or give --frames first or --frames all") from None

    return read


def _sizes(root, names):
    return for_each_file(root, names, "looking", picture_size)


def _common_size(root, names):
    sizes = _sizes(root, names)
    first = sizes[0]
    for name, size in zip(names, sizes, strict=True):
        if size != first:
            h, w = Counter(sizes).most_common(1)[0][0]
            raise DataError(
                f"the images differ in size: {root / names[0]} is {first[0]}×{first[1]} (height"
                f" × width), {root / name} is {size[0]}×{size[1]}; to resize all of them, give"
                f" --size {h}x{w} or another size"
            )
    return first
