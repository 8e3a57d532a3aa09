"""Read grayscale and color images as float32 in [0, 1], and adapt them to a network's input."""

import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Integral

import numpy as np

from minicaps.backend import array_module
from minicaps.data.dataset import Split
from minicaps.data.stored import Stored
from minicaps.errors import DataError, counted

INNER = 20 / 28  # extent of the ink in MNIST, as a fraction of a side
INK = 0.2  # threshold of ink, as a fraction of the lightest pixel
LOOKED_AT = 500  # images sampled to determine the background
LONGEST = 200  # bytes of a file name; the usual limit is 255, with a suffix while it is written
MOST_PIXELS = 50_000_000  # in an image file: a few kilobytes can hold more than the memory
LUMINANCE = np.array([0.299, 0.587, 0.114], dtype=np.float32)  # weights of R, G, B: ITU-R BT.601


@dataclass(frozen=True)
class Target:
    """Target properties of images for training a network or for using a trained one.

    Attributes
    ----------
    size : (height, width), None to keep the size of each image, or "auto" for custom data
        See `minicaps.data.own.sizing`.
    whole : function that enlarges a size chosen by "auto" until a network sees all of it, or None
    channels : 1 or 3, or None to keep the channels of each image
    classes : names of the classes of a trained network, or None to take those of the data
    fill : value of the padding, or None for the color of each image's border
    scale : values (black, white) in arrays that become 0 and 1, or None to infer them
    older : whether to infer them as older versions did
    """

    size: Sequence[int] | str | None = None
    channels: int | None = None
    classes: tuple[str, ...] | None = None
    fill: float | None = None
    scale: tuple[float, float] | None = None
    older: bool = False
    whole: Callable | None = None

    def fit(self, picture) -> np.ndarray:
        """Convert an image (C, H, W) in [0, 1] so that it has the target properties."""
        return fit(picture, self.size or picture.shape[1:], self.channels, fill=self.fill)

    def numbers(self, names, where) -> list[int]:
        """Return the network's class numbers for a list of class names.

        Raises `DataError` if a name is unknown to the network.
        """
        known = self.classes or ()
        if unknown := [name for name in names if name not in known]:
            raise DataError(
                f"{where} has the classes {', '.join(map(repr, unknown))}, but the network knows"
                f" {', '.join(known)}: rename or remove the unknown classes"
            )
        return [known.index(name) for name in names]


class SeveralFrames(DataError):
    """Raised when a file contains several images and none was chosen."""


def sides(size) -> tuple[int, int] | str | None:
    """Return a size, given as N or (height, width) in pixels, as a pair; None and "auto" remain."""
    if size is None or (isinstance(size, str) and size == "auto"):
        return size
    found = (size, size) if isinstance(size, Integral) else size
    if not isinstance(found, Sequence | np.ndarray) or len(found) != 2 or isinstance(found, str):
        found = ()
    if len(found) == 0 or not all(isinstance(side, Integral) and int(side) >= 1 for side in found):
        raise ValueError(
            f"size must be N or (height, width), whole numbers of pixels: got {size!r}"
        )
    return int(found[0]), int(found[1])


def read_picture(path) -> np.ndarray:
    """Read an image file as a float32 array (C, H, W) with values in [0, 1].

    path: path of the file, or an open binary file, whose `str` is its name in messages.

    C is 1 for grayscale images and 3 for color images. All formats that Pillow reads are supported,
    and the orientation stored by a camera is applied. Bytes and 16-bit integers are scaled so that
    white becomes 1. Transparent images are laid over a contrasting background: white if what they
    show is dark on average, and black otherwise. If the file cannot be read, if it has more than
    MOST_PIXELS, or if the scale of its values is ambiguous, a `DataError` names the file and
    suggests a remedy. A file with several images raises `SeveralFrames`.
    """
    with _opened(path) as picture:
        if (count := _count_frames(picture)) > 1:
            raise SeveralFrames(f"{path} contains {count} images: save each in a separate file")
        return _frame(picture, path)


def read_frames(path) -> Iterator[np.ndarray]:
    """Read the images of a file, such as the frames of an animation, as `read_picture` does."""
    with _opened(path) as picture:
        for k in range(_count_frames(picture)):
            picture.seek(k)
            yield _frame(picture, path)


def _frame(picture, path):
    """Convert the current frame of a Pillow image to an array (C, H, W)."""
    from PIL import ImageOps

    kind = picture.format
    picture = ImageOps.exif_transpose(picture)
    if picture.mode[0] in "IF":
        return _wide_numbers(picture, kind, path)[None]
    return _bytes(picture)


def _count_frames(picture):
    return 1 if picture.format == "MPO" else getattr(picture, "n_frames", 1)  # a camera's JPEG


def frame_count(path) -> int:
    """Return the number of images in a file, or 1 if it cannot be read."""
    try:
        with _opened(path) as picture:
            return _count_frames(picture)
    except DataError:
        return 1


def picture_size(path) -> tuple[int, int]:
    """Read the height and width of an image from the beginning of its file."""
    with _opened(path) as picture:
        width, height = picture.size
        lying = picture.getexif().get(0x0112, 1) >= 5  # orientations 5 to 8 swap the axes
    return (width, height) if lying else (height, width)


def fit(picture, size, channels=None, *, fill=None) -> np.ndarray:
    """Resize an image (C, H, W) in [0, 1] to fit within `size` (height, width).

    The aspect ratio is preserved by padding with the value `fill` or, if it is None, with the
    color of the image's border (see `border_color`). If `channels` is 1 or 3, the image is
    converted to that number of channels; if it is None, the channels do not change. Color images
    are converted to grayscale by luminance, and grayscale images are converted to color by
    repeating the channel.
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
    fitted = np.empty((len(picture), height, width), dtype=np.float32)
    if (rows, columns) != (height, width):
        fitted[:] = border_color(picture[None])[0, :, None, None] if fill is None else fill
    for plane, channel in zip(fitted, picture, strict=True):
        # Bilinear, with averaging when shrinking: only rounding errors can leave [0, 1]
        resized = Image.fromarray(channel).resize((columns, rows), Image.Resampling.BILINEAR)
        plane[top : top + rows, left : left + columns] = np.clip(np.asarray(resized), 0, 1)
    return fitted


def fitted(split: Split, target: Target) -> Split:
    """Convert the images of a split to the properties of `target`.

    If no image has to be converted, the split itself is returned. Otherwise, poses are dropped,
    because they refer to the pixels of the original images.
    """
    old = split.images.shape[1:]
    new = (target.channels or old[0], *(target.size or old[1:]))
    if new == old:
        return split
    check_memory(len(split), new[0], new[1:])
    images = np.empty((len(split), *new), dtype=np.float32)
    for k, image in enumerate(split.images):
        images[k] = target.fit(image)
    return replace(split, images=images, poses=None)


def check_memory(count, channels, size):
    """Raise `DataError` if the images would not fit in the machine's memory."""
    if not hasattr(os, "sysconf"):
        return
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    needed = count * channels * size[0] * size[1] * 4 * 2  # float32, and a copy for splitting
    if needed > there:
        raise DataError(
            f"{counted(count, 'image')} of {size[0]}×{size[1]} pixels could take"
            f" {needed / 1e9:.1f} GB of memory, but this machine has {there / 1e9:.1f} GB:"
            " choose a smaller --size"
        )


def centre(picture, size) -> np.ndarray:
    """Resize a light-on-dark image (C, H, W) to `size` (height, width), and center it as in MNIST.

    The ink is scaled to fit within the fraction `INNER` of the size, and its center of mass is
    moved to the center of the image (LeCun, Bottou, Bengio and Haffner 1998, section III A). A
    pixel counts as ink if it is brighter than the fraction `INK` of the brightest pixel. An image
    without ink is resized but not centered.
    """
    light = picture.mean(axis=0)
    lit = light > INK * light.max()
    if not lit.any():
        return fit(picture, size)
    rows, columns = (np.flatnonzero(lit.any(axis=axis)) for axis in (1, 0))
    inner = [max(1, round(INNER * side)) for side in size]
    ink = fit(picture[:, rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1], inner, fill=0)
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
    """Determine whether the background of images (n, C, H, W) is "dark", "light" or "mixed".

    The background of an image is the median of its border pixels, ignoring zeros with which it may
    have been padded. The result is "mixed" if more than a tenth of the images differ from the
    majority. If there are many images, only about `LOOKED_AT` of them are inspected.
    """
    light = np.mean([has_light_border(_without_bars(image)) for image in sampled(images)])
    if 0.1 < light < 0.9:
        return "mixed"
    return "light" if light > 0.5 else "dark"


def sampled(images):
    """Return at least `LOOKED_AT` images, evenly spaced, or all if there are fewer.

    Images in a file are not read.
    """
    which = slice(None, None, max(1, len(images) // LOOKED_AT))
    return images.some(which) if isinstance(images, Stored) else images[which]


def has_light_border(picture) -> bool:
    """Return whether the border pixels of an image (C, H, W) have a median of at least 0.5."""
    return np.median(_border(picture[None])) >= 0.5


def ground(picture) -> str | None:
    """Return whether an image (C, H, W) is "dark" or "light" at its border and in most pixels.

    The result is None if the border and most of the pixels differ.
    """
    light = has_light_border(picture)
    return None if light != (np.median(picture) >= 0.5) else "light" if light else "dark"


def border_color(images):
    """Return the median of the border pixels of images (n, C, H, W) by channel, as (n, C).

    The images may be on any device.
    """
    return array_module(images).median(_border(images), axis=2)


def _border(images):
    """Return the border pixels of images (n, C, H, W) by channel, with the corners twice."""
    edges = images[:, :, 0], images[:, :, -1], images[:, :, :, 0], images[:, :, :, -1]
    return array_module(images).concatenate(edges, axis=2)


def _without_bars(image):
    """Remove the rows or columns of zeros with which an image (C, H, W) was padded."""
    for lines in (1, 2):
        lit = np.flatnonzero(image.any(axis=(0, 3 - lines)))
        if lit.size and lit[-1] - lit[0] + 1 < image.shape[lines]:
            across = np.flatnonzero(image.any(axis=(0, lines)))
            if across.size == image.shape[3 - lines]:
                return image.take(range(lit[0], lit[-1] + 1), axis=lines)
    return image


def write_picture(file, picture):
    """Write an image (1 or 3, H, W) in [0, 1] as an 8-bit PNG to a path or an open file."""
    from PIL import Image

    pixels = np.rint(picture * 255).astype(np.uint8)
    Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)).save(file, "png")


def file_names(names) -> list[str]:
    """Convert names to distinct, valid file names without extensions; shorten long ones."""
    taken, following, chosen = set(), {}, []
    for name in names:
        plain = re.sub(r'[\0-\x1f/\\:*?"<>|]', "_", name).lstrip(".") or "_"
        if len(encoded := plain.encode(errors="replace")) > LONGEST:
            plain = encoded[:LONGEST].decode(errors="ignore")
        unique, key = plain, plain.casefold()
        while unique.casefold() in taken:
            following[key] = following.get(key, 1) + 1
            unique = f"{plain}-{following[key]}"
        taken.add(unique.casefold())
        chosen.append(unique)
    return chosen


@contextmanager
def _opened(path):
    """Open an image file with Pillow, and re-raise any error in the block as a `DataError`.

    An image of more than MOST_PIXELS is refused, which replaces Pillow's warning of a large image.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        if isinstance(path, str | os.PathLike) and not os.path.getsize(path):
            what = "is empty (0 bytes)" if os.path.isfile(path) else "is not a regular file"
            raise DataError(f"{path} {what}: replace or remove it")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            picture = Image.open(path)
        with picture:
            width, height = picture.size
            if width * height > MOST_PIXELS:
                raise DataError(
                    f"{path} has {height:,}×{width:,} pixels, but at most {MOST_PIXELS:,} are read"
                    " into memory: make it smaller"
                )
            yield picture
    except (DataError, MemoryError):
        raise
    except UnidentifiedImageError:
        raise DataError(
            f"{path} is not a readable image (PNG, JPEG, …): replace or remove it"
        ) from None
    except Image.DecompressionBombError as error:
        raise DataError(f"{path} is too large ({error}): make it smaller") from None
    except Exception as error:  # decoders raise errors of any type
        if isinstance(error, OSError) and error.strerror:
            raise DataError(f"cannot read {path}: {error.strerror}") from None
        raise DataError(f"{path} is damaged ({error}): replace or remove it") from None


def _bytes(picture):
    """Convert an 8-bit or 1-bit Pillow image to pixels (1 or 3, H, W) in [0, 1]."""
    grey = picture.mode in ("1", "L", "LA", "La")
    if picture.mode[-1] in "Aa" or "transparency" in picture.info:
        numbers = _over_contrast(np.asarray(picture.convert("RGBA")) / np.float32(255))
        return np.ascontiguousarray((numbers[..., :1] if grey else numbers).transpose(2, 0, 1))
    numbers = np.atleast_3d(np.asarray(picture.convert("L" if grey else "RGB")))
    return np.ascontiguousarray(numbers.transpose(2, 0, 1)) / np.float32(255)


def _over_contrast(pixels):
    """Lay pixels (H, W, 4) with transparency over white if they are dark on average, else black."""
    colors, opacity = pixels[..., :3], pixels[..., 3:]
    light = (colors @ LUMINANCE * opacity[..., 0]).sum() >= 0.5 * opacity.sum()
    return colors * opacity if light else colors * opacity + (1 - opacity)


def _wide_numbers(picture, kind, path):
    """Convert a Pillow image of 16-bit integers or floats to pixels (H, W) in [0, 1]."""
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
