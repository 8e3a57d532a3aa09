"""Pictures and labels from arrays of many kinds: what is plain is converted, else refused."""

import zipfile
import zlib
from pathlib import Path

import numpy as np

from minicaps.data.dataset import DataError

MOST_CLASSES = 2**31  # larger labels are mistakes, and may not fit 64 bits
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
            f"{name} in {path} holds Python objects, which are not loaded, as that could run code:"
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
            f"{where} have {images.dtype} pixels from {low:g} to {high:g}: expected 0 to 1, or"
            " whole numbers up to 255 or up to 65535 (more than 4095); subtract what is black,"
            " divide by what is white, and store floats"
        )
    scaled = np.divide(images, white, dtype=np.float32)
    scale = "0 is black, 1 white" if white == 1 else f"divided by {white}"
    return np.clip(scaled, 0, 1, out=scaled), f"pixels {low:g} to {high:g}, {scale}"


def class_numbers(labels, count, where):
    """Labels (n,) or (n, 1) as int64, one for each of `count` pictures."""
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.shape != (count,):
        raise DataError(
            f"{where} have shape {labels.shape}, but there are {count} pictures: expected"
            f" ({count},), the number of its class for each"
        )
    if labels.dtype.kind not in "buif":
        raise DataError(
            f"{where} are of type {labels.dtype}: expected class numbers 0, 1, 2, …; names belong"
            " into class_names"
        )
    with np.errstate(invalid="ignore"):  # the remainder of an infinite label
        wrong = ~((labels >= 0) & (labels < MOST_CLASSES) & (labels % 1 == 0))  # also for NaN
    if wrong.any():
        first = wrong.argmax()
        raise DataError(
            f"{where} have {labels[first]} at index {first}: class numbers are 0, 1, 2, …"
            f" ({wrong.sum()} of {count} are not)"
        )
    return labels.astype(np.int64)


def class_flags(labels, count, where):
    """Labels (n, J) of zeros and ones, for pictures of any number of classes, as uint8."""
    if len(labels) != count:
        raise DataError(f"{where} have {len(labels)} rows, but there are {count} pictures")
    if labels.dtype.kind not in "buif" or not ((labels == 0) | (labels == 1)).all():
        raise DataError(
            f"{where} of shape {labels.shape} are not zeros and ones: 1 for each class that is"
            " present; or give one number for each picture"
        )
    return labels.astype(np.uint8)


def names_of_classes(labels, names, where):
    """The names (or numbers, for None) of the classes, after a check that labels (n,), or (n, J) of
    zeros and ones, name all."""
    several = labels.ndim == 2
    present = np.flatnonzero(labels.any(axis=0)) if several else np.unique(labels)
    classes = labels.shape[1] if several else int(present[-1]) + 1
    if names is not None:
        names = _texts(names, classes, where)
        classes = len(names)
    if classes > len(present):
        expected = np.arange(len(present))
        gaps = np.flatnonzero(present != expected)
        empty = int(gaps[0]) if gaps.size else len(present)
        raise DataError(
            f"{where} has no picture of class {empty} ({names[empty]})"
            if names
            else f"{where} has no picture of class {empty}, but labels up to {classes - 1}: number"
            " the classes 0, 1, 2, … without a gap"
        )
    if classes < 2:
        raise DataError(f"{where} has one class only: a classifier needs at least 2")
    return tuple(names or map(str, range(classes)))


def labels_of_network(labels, names, where, target):
    """Labels (n,) in the numbers of the trained network that `target` is for, by the names of their
    classes; for None they are its numbers already."""
    highest, known = int(labels.max()), target.classes
    if names is None:
        if highest >= len(known):
            raise DataError(
                f"{where} has label {highest}, but the network knows {len(known)} classes,"
                f" 0 to {len(known) - 1}: {', '.join(known)}"
            )
        return labels
    names, present = _texts(names, highest + 1, where), np.unique(labels)
    numbers = np.zeros(len(names), np.int64)
    numbers[present] = target.numbers([names[k] for k in present], where)
    return numbers[labels]


def flags_of_network(labels, names, where, target):
    """As `labels_of_network`, of labels (n, J) of zeros and ones; (n, classes of the network)."""
    if names is None and labels.shape[1] != len(target.classes):
        raise DataError(
            f"{where} has {labels.shape[1]} columns, but the network knows {len(target.classes)}"
            f" classes: {', '.join(target.classes)}"
        )
    if names is None:
        return labels
    numbers = target.numbers(_texts(names, labels.shape[1], where), where)
    of_network = np.zeros((len(labels), len(target.classes)), np.uint8)
    of_network[:, numbers] = labels
    return of_network


def _texts(names, classes, where):
    """Stored names as a list of str, each once, at least one for each class."""
    if names.ndim != 1 or names.dtype.kind not in "US":
        raise DataError(
            f"class_names in {where} are {names.dtype} {names.shape}: expected one row of text"
        )
    names = [n.decode("utf-8", "replace") if isinstance(n, bytes) else str(n) for n in names]
    if classes > len(names) or len(set(names)) < len(names):
        raise DataError(
            f"{where} has labels up to {classes - 1} and the class names {', '.join(names)}:"
            " expected one name, its own, for each class"
        )
    return names
