"""What a data set is, and the checks that each passes before anything is trained on it."""

import hashlib
from dataclasses import dataclass, replace
from numbers import Integral

import numpy as np

from minicaps.backend import array_module, to_host


class DataError(Exception):
    """Data that is missing, damaged or not what it should be; the message is for the user."""


@dataclass(frozen=True, eq=False)
class Split:
    """Pictures with their classes, and with their poses and names where these are known.

    images (n, channels, height, width) float32 in [0, 1]; labels (n,) int64, or uint8 (n, classes),
    1 for each class that is present, where a picture may have any number of them; poses (n, d) or
    None; names (n,): the file of each picture or its index in the whole, or None.
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
        if len(labels) != len(images) or (labels.ndim, labels.dtype) not in ((1, int), (2, "u1")):
            raise ValueError(
                f"labels must be int64 of shape ({len(images)},), one for each image, or uint8"
                f" ({len(images)}, classes), got {labels.dtype} {labels.shape}"
            )

    def __len__(self):
        return len(self.labels)

    @property
    def multi(self) -> bool:
        """Whether a picture may have any number of classes."""
        return self.labels.ndim == 2

    @property
    def shape(self):
        """(channels, height, width) of a picture."""
        return self.images.shape[1:]

    @property
    def pixels(self):
        """All pictures (n, channels, height, width); of composed ones what they are made of."""
        return self.images

    @property
    def strata(self):
        """A class (n,) of each sample, to cut from each in proportion: of several it is the rarest;
        samples without one are a class of their own."""
        if not self.multi:
            return self.labels
        rarity = np.where(self.labels, self.labels.sum(axis=0, dtype=np.int64), len(self) + 1)
        none = self.labels.shape[1]
        return np.where(self.labels.any(axis=1), rarity.argmin(axis=1), none)

    @property
    def nbytes(self) -> int:
        """Memory that pixels and labels take."""
        return self.images.nbytes + self.labels.nbytes

    def on(self, device) -> "Split":
        """With its pixels on a device, and its labels, unless they are of several classes: from
        these follows on the host what a decoder draws."""
        labels = self.labels if self.multi else device.put(self.labels)
        return replace(self, images=device.put(self.images), labels=labels)

    def pick(self, which):
        """Pictures and labels that an index array of the host names, on the device where they
        are."""
        there = array_module(self.images).asarray(which)
        return self.images[there], self.labels[which if self.multi else there]

    def at(self, epoch) -> "Split":
        """The same in each epoch; composed pictures are not."""
        return self

    def cut(self, held_out) -> tuple["Split", "Split"]:
        """Cut by a mask (n,): the samples outside, and those inside."""
        return self.take(~held_out), self.take(held_out)

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

    @property
    def multi(self) -> bool:
        """Whether a picture may have any number of classes."""
        return self.train.multi

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
            held_out = draw_by_class(self.train.strata, count, random)
            left = count_classes(self.train.labels[~held_out], len(self.class_names))
            if not left.all():
                raise ValueError(
                    f"a validation split of {size} would leave no training picture of class"
                    f" {self.class_names[left.argmin()]!r}: make it smaller, or add pictures"
                )
        else:
            held_out = np.zeros(n, dtype=bool)
            held_out[random.permutation(n)[:count]] = True
        return self.train.cut(held_out)


def generator(seed, *key):
    """A random generator for each key.

    It starts with what is drawn: 0 validation, 1 batches, 2 and 3 parts of one's own pictures, 4
    what is composed, 5 affine changes.
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def count_classes(labels, classes: int) -> np.ndarray:
    """How many samples each class has (classes,): labels as in `Split`."""
    if labels.ndim == 2:
        return labels.sum(axis=0, dtype=np.int64)
    return np.bincount(labels, minlength=classes)


def of_class(labels, k: int) -> np.ndarray:
    """Which samples (n,) have class k, a mask: labels as in `Split`."""
    return labels[:, k] > 0 if labels.ndim == 2 else labels == k


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
