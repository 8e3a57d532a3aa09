"""Pictures from arrays of many kinds: what is plain is converted, else refused."""

import zipfile
import zlib
from pathlib import Path

import numpy as np

from minicaps.errors import DataError

ROUNDING = 1e-6  # floats may leave [0, 1] by so much, as resizing makes them


def read_npz(path):
    """images, labels, class_names (or None) as stored in an .npz file, and notes for the user.

    Never unpickles: loading runs no code from the file.
    """
    path = Path(path)
    if path.suffix.lower() != ".npz" or not path.is_file():
        raise DataError(
            f"{path} is no data set: expected a folder with a folder for each class, an .npz file"
            " with images and labels, or a folder with four IDX files"
        )
    try:
        with open(path, "rb") as file:
            if not zipfile.is_zipfile(file):
                raise zipfile.BadZipFile("it is no zip archive, or its end is missing")
            file.seek(0)
            stored = np.load(file, allow_pickle=False)
            arrays = {name: _stored(stored, name, path) for name in stored.files}
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        ValueError,
        AttributeError,
        KeyError,
    ) as error:
        raise DataError(f"{path} is not a whole .npz file ({error}): get it again") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None
    if missing := [name for name in ("images", "labels") if name not in arrays]:
        raise DataError(
            f"{path} has no {' and no '.join(missing)}, but {', '.join(arrays) or 'nothing'}: save"
            " it by np.savez(path, images=…, labels=…)"
        )
    images, labels, names = (arrays.pop(n, None) for n in ("images", "labels", "class_names"))
    notes = (f"not used of {path}: {', '.join(arrays)}",) if arrays else ()
    return images, labels, names, notes


def _stored(file, name, path):
    try:
        return file[name]
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise DataError(
            f"{path} holds Python objects as {name}, which are not loaded, as that could run code:"
            " store an array of numbers, all pictures of one size"
        ) from None


def channels_first(images, where):
    """Pictures (n, height, width), (n, height, width, channels) or (n, channels, height, width) as
    the last of these, and a note. The axis of size 1 or 3 has the channels; if both are, it is the
    second."""
    shape = images.shape
    if images.size == 0:
        raise DataError(f"{where}: there are none, the shape is {shape}")
    if images.ndim == 3:
        return images[:, None], "(pictures, height, width)"
    if images.ndim == 4 and shape[1] in (1, 3):
        return images, "(pictures, channels, height, width)"
    if images.ndim == 4 and shape[3] in (1, 3):
        return images.transpose(0, 3, 1, 2), "(pictures, height, width, channels)"
    raise DataError(
        f"{where} have shape {shape}: expected (pictures, height, width), or with 1 or 3 channels"
        " second or last"
    )


def in_unit_range(images, where):
    """Pictures as float32 in [0, 1], and a note on what was taken for white: 1, or for whole
    numbers 255, or 65535 if they exceed 12 bits, which may have another white."""
    if images.dtype.kind not in "buif":
        raise DataError(f"{where} are of type {images.dtype}: expected numbers")
    finite = np.isfinite(images)
    if not finite.all():
        first = np.unravel_index(finite.argmin(), images.shape)
        raise DataError(
            f"{where} have the pixel {images[first]} in picture {first[0]}: every pixel must be a"
            " number; repair or remove the picture"
        )
    low, high = float(images.min()), float(images.max())
    whole = images.dtype.kind != "f" or not (images % 1).any()
    white = None
    if low >= -ROUNDING and high <= 1 + ROUNDING:
        white = 1
    elif low >= 0 and whole:
        white = 255 if high <= 255 else 65535 if 4095 < high <= 65535 else None
    if white is None or high <= 0:
        raise DataError(
            f"{where} have {images.dtype} pixels from {low:zg} to {high:zg}: expected 0 to 1, or"
            " whole numbers up to 255 or up to 65535 (more than 4095); subtract what is black,"
            " divide by what is white, and store floats"
        )
    scaled = np.divide(images, white, dtype=np.float32)
    scale = "0 is black, 1 white" if white == 1 else f"divided by {white}"
    return np.clip(scaled, 0, 1, out=scaled), f"pixels {low:zg} to {high:zg}, {scale}"
