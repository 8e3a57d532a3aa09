"""What a data set is, and the checks that each passes before anything is trained on it."""

import hashlib
from dataclasses import dataclass
from numbers import Integral

import numpy as np

from minicaps.backend import to_host


class DataError(Exception):
    """Data that is missing, damaged or not what it should be; the message is for the user."""


@dataclass(frozen=True, eq=False)
class Split:
    """Pictures with their classes, and with their poses and names where these are known.

    images (n, channels, height, width) float32 in [0, 1], labels (n,) int64, poses (n, d) or None;
    names (n,): the file of each picture or its index in the whole, or None.
    """

    images: np.ndarray
    labels: np.ndarray
    poses: np.ndarray | None = None
    names: np.ndarray | None = None

    def __post_init__(self):
        images, labels = self.images, self.labels
        if images.ndim != 4 or images.dtype != np.float32:
            raise ValueError(
                "images must be float32 of shape (n, channels, height, width), "
                f"got {images.dtype} {images.shape}"
            )
        if labels.shape != images.shape[:1] or labels.dtype != np.int64:
            raise ValueError(
                f"labels must be int64 of shape ({len(images)},), one for each image, "
                f"got {labels.dtype} {labels.shape}"
            )

    def __len__(self):
        return len(self.labels)

    def sha256(self) -> str:
        """A checksum of pictures and labels, to tell whether they are still the same."""
        digest = hashlib.sha256()
        for array in (self.images, self.labels):
            digest.update(f"{array.dtype.str} {array.shape} ".encode())
            digest.update(np.ascontiguousarray(to_host(array)))
        return digest.hexdigest()

    def take(self, which) -> "Split":
        """The samples that an index array or a slice names, in its order."""
        poses = None if self.poses is None else self.poses[which]
        names = None if self.names is None else self.names[which]
        return Split(self.images[which], self.labels[which], poses, names)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A training split, a test split, and the name of each class (class k is `class_names[k]`).

    by_class: validation is cut from each class in proportion, as small data sets need. notes: what
    the user should know about how the data was read, in sentences.
    """

    name: str
    train: Split
    test: Split
    class_names: tuple[str, ...]
    by_class: bool = False
    notes: tuple[str, ...] = ()

    def cut_validation(self, size: int | float, seed: int = 0) -> tuple[Split, Split]:
        """Cut a validation split from the training split: (the rest, validation).

        `size` is a number of samples (int) or a fraction of the training split (float between 0
        and 1). Which samples go depends on `seed`, `size` and their number alone, and with
        `by_class` on their labels. Both parts keep the order of the training split. The test split
        has no part in it.
        """
        n = len(self.train)
        if isinstance(size, Integral):
            count = int(size)
        elif 0 < size < 1:
            count = round(size * n)
        else:
            raise ValueError(
                f"a validation fraction must lie between 0 and 1, got {size}: "
                "write a number of samples as an integer"
            )
        if not 1 <= count < n:
            raise ValueError(
                f"a validation split of {size} would take {count} of {n} training samples: "
                "it needs at least 1, and so does training"
            )
        random = generator(seed, 0)
        if self.by_class:
            held_out = draw_by_class(self.train.labels, count, random)
            left = np.bincount(self.train.labels[~held_out], minlength=len(self.class_names))
            if not left.all():
                raise ValueError(
                    f"a validation split of {size} would leave no training picture of class"
                    f" {self.class_names[left.argmin()]!r}: make it smaller, or add pictures"
                )
        else:
            held_out = np.zeros(n, dtype=bool)
            held_out[random.permutation(n)[:count]] = True
        return self.train.take(~held_out), self.train.take(held_out)


def generator(seed, *key):
    """A random generator for each key.

    It starts with what is drawn: 0 validation, 1 batches, 2 and 3 parts of one's own pictures.
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def draw_by_class(labels, count: int, generator) -> np.ndarray:
    """Draw `count` of the samples with labels (n,), of each class in proportion; a mask (n,).

    The samples of a class stand in random order, evenly spaced from 0 to 1, and the first of all
    classes together are drawn: one of each class before a second of any.
    """
    place = np.empty(len(labels))
    for label in np.unique(labels):
        which = np.flatnonzero(labels == label)
        place[generator.permutation(which)] = np.arange(len(which)) / len(which)
    drawn = np.zeros(len(labels), dtype=bool)
    drawn[np.lexsort((generator.random(len(labels)), place))[:count]] = True
    return drawn


def checked_split(images, labels, classes: int, *, images_from, labels_from, limit=None) -> Split:
    """Turn pictures (n, [channels,] height, width) and labels (n,), as read from files, into a
    `Split`, or only the first `limit` of them.

    Bytes 0..255 are scaled to [0, 1]; floats must lie in [0, 1] already. Labels must be integers
    0..classes-1. Everything else is a `DataError` that names where the data came from
    (`images_from`, `labels_from`) and the first offender.
    """
    if images.ndim not in (3, 4) or labels.ndim != 1:
        raise DataError(
            f"{images_from} has shape {images.shape} and {labels_from} has shape {labels.shape}: "
            "expected (n, height, width) or (n, channels, height, width), and (n,)"
        )
    if len(images) != len(labels):
        raise DataError(
            f"{images_from} has {len(images)} images but {labels_from} has {len(labels)} labels"
        )
    if len(images) == 0:
        raise DataError(f"{images_from} has no images")
    if limit is not None and limit > len(images):
        raise ValueError(f"limit {limit} is more than the {len(images)} images of {images_from}")
    check_labels(labels, classes, labels_from)
    if images.ndim == 3:
        images = images[:, None]
    pixels = pixels_in_unit_range(images[:limit], images_from)
    return Split(pixels, labels[:limit].astype(np.int64))


def check_labels(labels, classes: int, where: str):
    """Raise `DataError` unless labels (n,) are integers 0..classes-1. Checked when data is loaded,
    on the host: a device would wrap a wrong label silently, or each training step would wait."""
    if not np.issubdtype(labels.dtype, np.integer):
        raise DataError(
            f"{where} has labels of type {labels.dtype}: class numbers must be integers"
        )
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if wrong.size:
        raise DataError(
            f"{where} has label {labels[wrong[0]]} at index {wrong[0]}: with {classes} classes, "
            f"labels are 0 to {classes - 1} ({wrong.size} of {labels.size} are not)"
        )


def pixels_in_unit_range(images, where: str):
    """Images (n, ...) of bytes 0..255 or of floats in [0, 1] as float32 in [0, 1]; `DataError` for
    all others."""
    if images.dtype == np.uint8:
        return np.divide(images, 255, dtype=np.float32)
    if not np.issubdtype(images.dtype, np.floating):
        raise DataError(
            f"{where} has pixels of type {images.dtype}: "
            "expected bytes (0 to 255) or floats (0 to 1)"
        )
    inside = (images >= 0) & (images <= 1)  # False for NaN
    if not inside.all():
        first = np.unravel_index(np.argmin(inside), images.shape)
        raise DataError(
            f"{where} has the pixel value {images[first]} in image {first[0]}: "
            "floating-point pixels must lie between 0 and 1; scale them, or store bytes 0 to 255"
        )
    return images.astype(np.float32)
