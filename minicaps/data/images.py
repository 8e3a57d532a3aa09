"""Pictures from files, grey or colour, as float32 in [0, 1]; and how they fit a network's size."""

import itertools
import os
import re
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from minicaps.data.dataset import Split
from minicaps.errors import DataError

INNER = 20 / 28  # of a side, for the ink of MNIST's digits
INK = 0.2  # of the lightest pixel
LOOKED_AT = 500  # pictures, for their background
LUMINANCE = np.array([0.299, 0.587, 0.114], dtype=np.float32)  # of R, G, B: ITU-R BT.601


@dataclass(frozen=True)
class Target:
    """What pictures are made to be, for all networks or for one that is trained.

    size (height, width) and channels (1 or 3): None leaves those that a picture has. invert: light
    becomes dark. classes: the names that a network knows; None takes those of the data.
    """

    size: tuple[int, int] | None = None
    channels: int | None = None
    invert: bool = False
    classes: tuple[str, ...] | None = None

    def fit(self, picture) -> np.ndarray:
        """A picture (C, H, W) in [0, 1] as it should be."""
        picture = 1 - picture if self.invert else picture
        return fit(picture, self.size or picture.shape[1:], self.channels)

    def numbers(self, names, where) -> list[int]:
        """The network's numbers of the classes called `names`; `DataError` for unknown ones."""
        known = self.classes or ()
        if unknown := [name for name in names if name not in known]:
            raise DataError(
                f"{where} has the classes {', '.join(map(repr, unknown))}, but the network knows"
                f" {', '.join(known)}: rename them, or leave them out"
            )
        return [known.index(name) for name in names]


def read_picture(path) -> np.ndarray:
    """The picture in a file, (C, H, W) float32 in [0, 1], C = 1 for grey and 3 for colour.

    Reads what Pillow reads, turned as the camera noted. Bytes and 16-bit numbers are scaled so that
    white is 1; what is transparent shows black. A file that cannot be read, or whose numbers have
    no plain meaning, is a `DataError` that names it and says what to do.
    """
    from PIL import ImageOps

    with _opened(path) as picture:
        if getattr(picture, "n_frames", 1) > 1 and picture.format != "MPO":  # MPO: a camera's JPEG
            raise DataError(f"{path} holds {picture.n_frames} pictures: save each in its own file")
        kind = picture.format
        picture = ImageOps.exif_transpose(picture)
        if picture.mode[0] in "IF":
            return _wide_numbers(picture, kind, path)[None]
        pixels = _bytes(picture).astype(np.float32)
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def picture_size(path) -> tuple[int, int]:
    """Height and width of the picture in a file; only the start of the file is read."""
    with _opened(path) as picture:
        width, height = picture.size
        lying = picture.getexif().get(0x0112, 1) >= 5  # orientations 5 to 8 swap the axes
    return (width, height) if lying else (height, width)


def fit(picture, size, channels=None) -> np.ndarray:
    """A picture (C, H, W) in [0, 1], made as large as fits `size` (height, width) with its
    proportions kept; zeros fill the rest. `channels`: 1 or 3, or None for those it has.

    Grey is the luminance of a colour; colour is three times the grey.
    """
    if channels == 1 and len(picture) == 3:
        picture = np.einsum("c,chw->hw", LUMINANCE, picture)[None]
    elif channels == 3 and len(picture) == 1:
        picture = np.repeat(picture, 3, axis=0)
    if picture.shape[1:] == tuple(size):
        return picture
    from PIL import Image

    (height, width), (_, h, w) = size, picture.shape
    scale = min(height / h, width / w)
    rows, columns = max(1, round(h * scale)), max(1, round(w * scale))
    top, left = (height - rows) // 2, (width - columns) // 2
    fitted = np.zeros((len(picture), height, width), dtype=np.float32)
    for plane, channel in zip(fitted, picture, strict=True):
        # Bilinear, and averaging where it shrinks: no value leaves the range, but by rounding
        resized = Image.fromarray(channel).resize((columns, rows), Image.Resampling.BILINEAR)
        plane[top : top + rows, left : left + columns] = np.clip(np.asarray(resized), 0, 1)
    return fitted


def fitted(split: Split, target: Target) -> Split:
    """A split whose pictures are as `target` wants them: itself if they are. Poses are in pixels of
    the old pictures, and go."""
    old = split.images.shape[1:]
    new = (target.channels or old[0], *(target.size or old[1:]))
    if new == old and not target.invert:
        return split
    check_memory(len(split), new[0], new[1:])
    images = np.empty((len(split), *new), dtype=np.float32)
    for k, image in enumerate(split.images):
        images[k] = target.fit(image)
    return Split(images, split.labels, names=split.names)


def check_memory(count, channels, size):
    """Refuse pictures that would fill the machine, before it comes to a standstill."""
    if not hasattr(os, "sysconf"):
        return
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    needed = count * channels * size[0] * size[1] * 4 * 2  # floats, and once more to sort them
    if needed > there:
        raise DataError(
            f"{count:,} pictures of {size[0]}×{size[1]} need up to {needed / 1e9:.1f} GB"
            f" of memory, this machine has {there / 1e9:.1f}: give a smaller --size"
        )


def centre(picture, size) -> np.ndarray:
    """A picture (C, H, W), light on dark, fitted to `size` (height, width) as MNIST's were made:
    its ink as large as fits `INNER` of the size, and the ink's centre of mass in the middle.

    LeCun, Bottou, Bengio and Haffner 1998, section III A. What is lighter than `INK` of the
    lightest is ink; a picture without any is fitted as it is.
    """
    light = picture.mean(axis=0)
    lit = light > INK * light.max()
    if not lit.any():
        return fit(picture, size)
    rows, columns = (np.flatnonzero(lit.any(axis=axis)) for axis in (1, 0))
    inner = [max(1, round(INNER * side)) for side in size]
    ink = fit(picture[:, rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1], inner)
    centred = np.zeros((len(ink), *size), dtype=np.float32)
    mass = ink.mean(axis=0)
    places = []
    for axis, (side, length) in enumerate(zip(size, inner, strict=True)):
        middle = np.arange(length) @ mass.sum(axis=1 - axis) / mass.sum()
        start = min(max(round((side - 1) / 2 - middle), 0), side - length)
        places.append(slice(start, start + length))
    centred[:, *places] = ink
    return centred


def background(images) -> str:
    """Whether pictures (n, C, H, W) in [0, 1] are light on "dark" or dark on "light", by the median
    of the border of each; "mixed" if more than a tenth differ from the others.

    The zeros that `fit` puts around are left out. Of many pictures, some `LOOKED_AT` are looked at.
    """
    some = images[:: max(1, len(images) // LOOKED_AT)]
    light = np.mean([has_light_border(_without_bars(image)) for image in some])
    if 0.1 < light < 0.9:
        return "mixed"
    return "light" if light > 0.5 else "dark"


def has_light_border(picture) -> bool:
    """Tell whether the median of the border of a picture (C, H, W) in [0, 1] is nearer to white."""
    edges = picture[:, 0], picture[:, -1], picture[:, :, 0], picture[:, :, -1]
    return np.median(np.concatenate(edges, axis=1)) >= 0.5


def _without_bars(image):
    """An image (C, H, W) without the rows, or the columns, of zeros that `fit` puts at its ends."""
    for lines in (1, 2):
        lit = np.flatnonzero(image.any(axis=(0, 3 - lines)))
        if lit.size and lit[-1] - lit[0] + 1 < image.shape[lines]:
            across = np.flatnonzero(image.any(axis=(0, lines)))
            if across.size == image.shape[3 - lines]:
                return image.take(range(lit[0], lit[-1] + 1), axis=lines)
    return image


def write_picture(file, picture):
    """Write a picture (1 or 3, H, W) in [0, 1] as PNG, in bytes, to a path or an open file."""
    from PIL import Image

    pixels = np.rint(picture * 255).astype(np.uint8)
    Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)).save(file, "png")


def file_names(names) -> list[str]:
    """The names, made different from each other and such as files may have; no endings."""
    taken, chosen = set(), []
    for name in names:
        plain = re.sub(r'[\0-\x1f/\\:*?"<>|]', "_", name).lstrip(".") or "_"
        unique = plain
        for k in itertools.count(2):
            if unique.casefold() not in taken:
                break
            unique = f"{plain}-{k}"
        taken.add(unique.casefold())
        chosen.append(unique)
    return chosen


@contextmanager
def _opened(path):
    """Pillow's picture of a file; whatever goes wrong in the block is a `DataError`."""
    from PIL import Image, UnidentifiedImageError

    try:
        if not os.path.getsize(path):
            raise DataError(f"{path} is empty (0 bytes): get it again, or remove it")
        with Image.open(path) as picture:
            yield picture
    except (DataError, MemoryError):
        raise
    except UnidentifiedImageError:
        raise DataError(
            f"{path} is no picture that can be read (PNG, JPEG, …): replace it, or remove it"
        ) from None
    except Image.DecompressionBombError as error:
        raise DataError(f"{path} is too large ({error}): make it smaller") from None
    except Exception as error:  # decoders raise whatever they stumble over
        if isinstance(error, OSError) and error.strerror:
            raise DataError(f"cannot read {path}: {error.strerror}") from None
        raise DataError(f"{path} is damaged ({error}): get it again, or remove it") from None


def _bytes(picture):
    """Pixels (H, W, 1 or 3) in [0, 1] of a picture that has bytes or bits."""
    grey = picture.mode in ("1", "L", "LA", "La")
    if picture.mode[-1] in "Aa" or "transparency" in picture.info:
        numbers = np.asarray(picture.convert("RGBA")) / np.float32(255)
        numbers = numbers[..., :3] * numbers[..., 3:]
        return numbers[..., :1] if grey else numbers
    numbers = np.asarray(picture.convert("L" if grey else "RGB")) / np.float32(255)
    return numbers[..., None] if grey else numbers


def _wide_numbers(picture, kind, path):
    """Pixels (H, W) in [0, 1] of a picture that has 16-bit numbers, or floats in [0, 1]."""
    numbers = np.asarray(picture)
    if picture.mode.startswith("I;16") or kind == "PNG":  # a PNG has no more than 16 bits
        return np.divide(numbers, 65535, dtype=np.float32)
    low, high = numbers.min(), numbers.max()
    if picture.mode == "F" and low >= 0 and high <= 1:  # False for NaN
        return numbers.astype(np.float32)
    raise DataError(
        f"{path} has pixels from {low:g} to {high:g}: expected bytes, 16-bit numbers, or floats"
        " from 0 to 1; save it as PNG"
    )
