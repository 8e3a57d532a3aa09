"""Convert arrays of many kinds to images, rejecting ambiguous input."""

import zipfile
import zlib
from pathlib import Path

import numpy as np

from minicaps.data.own.files import some_of
from minicaps.errors import DataError, escaped

ROUNDING = 1e-6  # tolerated excess over [0, 1], since resizing causes rounding errors
DARK = 1 / 16  # of white; a set without brighter pixels does not use the whole range
FEW_BITS = 31  # largest white of integers with 5 bits or fewer
MOST_EXACT = 2**24  # float32 has all whole numbers up to it
EXCESS = 0.25  # tolerated excess over the range of the training images, as a fraction


def plain_array(values, *, masked, ragged) -> np.ndarray:
    """Return `values` as an array.

    Raises `DataError` with the message `masked` for a masked array, whose mask would be lost, and
    with `ragged` if the lengths of nested sequences differ.
    """
    if isinstance(values, np.ma.MaskedArray):
        raise DataError(masked)
    try:
        return np.asarray(values)
    except ValueError:
        raise DataError(ragged) from None


def read_npz(path):
    """Read the images, the labels and the class names (or None) from an .npz file.

    Notes for the user are returned as well.

    Pickled objects are never loaded, so a file cannot execute code.
    """
    path = Path(path)
    if path.suffix.lower() != ".npz" or not path.is_file():
        raise DataError(
            f"{path} is not a data set: expected a folder with one subfolder per class (or a"
            " .zip file of it), an .npz file with images and labels, or a folder with four IDX"
            " files"
        )
    try:
        with open(path, "rb") as file:
            if not zipfile.is_zipfile(file):
                raise zipfile.BadZipFile("it is not a zip archive, or it is truncated")
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
        raise DataError(f"{path} is not a valid .npz file ({error}): get a new copy") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None
    if missing := [name for name in ("images", "labels") if name not in arrays]:
        only = some_of(list(arrays)) or "nothing"
        raise DataError(
            f"{path} contains no {' and no '.join(missing)}, only {only}: save it with"
            " np.savez(path, images=…, labels=…)"
        )
    images, labels, names = (arrays.pop(n, None) for n in ("images", "labels", "class_names"))
    notes = (f"unused arrays in {path}: {some_of(list(arrays))}",) if arrays else ()
    return images, labels, names, notes


def _stored(file, name, path):
    try:
        array = file[name]
        if not isinstance(array, np.ndarray):  # NumPy returns the bytes of other members
            raise DataError(
                f"{path} contains {escaped(name)}, which is not an array: save the file with"
                " np.savez(path, images=…, labels=…)"
            )
        return array
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise DataError(
            f"{path} contains Python objects as {escaped(name)}, which are not loaded because"
            " this could run code: store an array of numbers, with all images of the same size"
        ) from None


def channels_first(images, where):
    """Convert images to shape (n, channels, height, width), and return them with a note.

    Images of shape (n, height, width) or (n, height, width, channels) are accepted as well. The
    channel axis has size 1 or 3; if both the second and the last axis qualify, the second axis is
    used.
    """
    shape = images.shape
    if images.size == 0:
        raise DataError(f"{where} are empty: their shape is {shape}")
    if images.ndim == 3:
        return images[:, None], "(images, height, width)"
    if images.ndim == 4 and shape[1] in (1, 3):
        return images, "(images, channels, height, width)"
    if images.ndim == 4 and shape[3] in (1, 3):
        return images.transpose(0, 3, 1, 2), "(images, height, width, channels)"
    raise DataError(
        f"{where} have shape {shape}: expected (images, height, width), or an additional second"
        " or last axis with 1 or 3 channels"
    )


def in_unit_range(images, where, scale=None, *, older=False):
    """Scale images to float32 in [0, 1]; return them, the scale and a note on it.

    The scale is a pair (black, white), or None if all values lie in [0, 1]. If `scale` is given,
    the one of the training images, it is used for all images that roughly have its range.
    Otherwise, white is 255 for integers with a maximum of at most 255 and floats with one of 128 to
    255, and 65535 for whole numbers with one above 4095. Floats of other ranges and integers up to
    `FEW_BITS` are scaled by their own range, from 0 or a negative minimum to the maximum. Integers
    with a maximum between 255 and 4095 are rejected, because white is ambiguous for 12-bit data.

    older: whether to use only 1, 255 and 65535 as white, as older versions did.
    """
    if images.dtype.kind not in "buif":
        raise DataError(f"{where} are of type {images.dtype}: expected numbers")
    finite = np.isfinite(images)
    if not finite.all():
        first = np.unravel_index(finite.argmin(), images.shape)
        raise DataError(
            f"{where} have the pixel value {images[first]} in image {first[0]}: every pixel must"
            " be a finite number; repair or remove the image"
        )
    low, high = float(images.min()), float(images.max())
    found, known = _scale_of(images, low, high, older), in_range(low, high, scale)
    if known:
        found = scale
    if low == high == 0 or (found and not np.isfinite(found[1] - found[0])):
        why = "all images are blank" if low == high else "the range exceeds floating-point numbers"
        raise DataError(f"{where} have {images.dtype} pixels from {low:zg} to {high:zg}: {why}")
    if found is None or found[0] == found[1]:
        raise DataError(
            f"{where} have {images.dtype} pixels from {low:zg} to {high:zg}: expected floats, or"
            " integers from 0 whose maximum is at most 255 or from 4096 to 65535; subtract the"
            " value of black, divide by that of white, and store floats"
        )
    black, white = found
    shifted = images if black == 0 else images - black
    wide = np.float64 if white - black > MOST_EXACT else np.float32
    scaled = np.divide(shifted, white - black, dtype=wide).astype(np.float32, copy=False)
    how = f"divided by {white:g}" if black == 0 else f"scaled from {black:g} to {white:g}"
    how = "0 is black, 1 is white" if found == (0, 1) else how
    note = f"pixels {low:zg} to {high:zg}, {how}{' as in training' if known else ''}"
    return np.clip(scaled, 0, 1, out=scaled), None if found == (0, 1) else found, note


def in_range(low, high, scale) -> bool:
    """Return whether pixels from `low` to `high` roughly have the range (black, white) of `scale`.

    Pixels in [0, 1] have a scale already.
    """
    if scale is None or (low >= -ROUNDING and high <= 1 + ROUNDING):
        return False
    black, white = scale
    excess = EXCESS * (white - black)
    return low >= (black - excess if black else -ROUNDING) and high <= white + excess


def _scale_of(images, low, high, older):
    """Return the range (black, white) of images from their values, or None if it is ambiguous."""
    floats = images.dtype.kind == "f"
    whole = not floats or not (images % 1).any()
    if low >= -ROUNDING and high <= 1 + ROUNDING:
        faint = floats and not older and high < DARK
        return None if high <= 0 else (0, high) if faint else (0, 1)
    if older and (low < 0 or not whole):
        return None
    if not older and (low < 0 if floats else low >= 0 and high <= FEW_BITS):
        return min(low, 0), high
    if low >= 0 and high <= 255 and (older or not floats or high >= 128):
        return 0, 255
    if low >= 0 and whole and 4095 < high <= 65535:
        return 0, 65535
    return (0, high) if floats and not older else None
