"""Data sets and their splits, and functions for dividing a split."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from numbers import Integral

import numpy as np

from minicaps.backend import Array, Device, array_module, to_host
from minicaps.data.stored import Stored, on_device

VALIDATION_SHARE = 0.1  # of the training samples, unless the data or the user says otherwise
IMBALANCED = 3  # times as many samples in the largest class as in the smallest


@dataclass(frozen=True, eq=False)
class Split:
    """Images with their labels and, if available, their poses and names.

    Attributes
    ----------
    images : float32 in [0, 1], shape (n, channels, height, width)
        An array, or `minicaps.data.stored.Stored` images that are read when they are needed.
    labels : int64, shape (n,); or uint8, shape (n, classes), for multi-label data
        Multi-label data has a 1 for each class that is present.
    poses : shape (n, d), or None
    names : shape (n,), or None
        The file of each image, or its index in the whole data set.
    groups : int64, shape (n,), or None
        Images of the same group, such as the frames of an animation, stay in the same part.
    scale : values (black, white) that became 0 and 1, or None if the pixels were not scaled
    """

    images: np.ndarray | Stored
    labels: np.ndarray
    poses: np.ndarray | None = None
    names: np.ndarray | None = None
    groups: np.ndarray | None = None
    scale: tuple[float, float] | None = None

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
                f" of shape ({len(images)}, classes), got {labels.dtype} {labels.shape}"
            )

    def __len__(self):
        return len(self.labels)

    @property
    def multi(self) -> bool:
        """Whether the images are multi-label and can have any number of classes."""
        return self.labels.ndim == 2

    @property
    def shape(self):
        """Shape of an image, (channels, height, width)."""
        return self.images.shape[1:]

    @property
    def pixels(self):
        """Pixels of all images or, if the images are composed, of their single images."""
        return self.images

    @property
    def strata(self):
        """Stratum of each sample, as an array (n,) for stratified splitting.

        The stratum of a sample is its class, or its rarest class if it has several. All samples
        without a class share an additional stratum.
        """
        if not self.multi:
            return self.labels
        rarity = np.where(self.labels, self.labels.sum(axis=0, dtype=np.int64), len(self) + 1)
        none = self.labels.shape[1]
        return np.where(self.labels.any(axis=1), rarity.argmin(axis=1), none)

    @property
    def nbytes(self) -> int:
        """Memory used by images and labels, in bytes."""
        return self.images.nbytes + self.labels.nbytes

    def on(self, device: Device) -> "Split":
        """Return a copy whose images and labels are on `device`.

        The labels of multi-label data stay on the host, where the decoder's targets are computed.
        """
        labels = self.labels if self.multi else device.put(self.labels)
        return replace(self, images=on_device(self.images, device), labels=labels)

    def blocks(self) -> Iterator["Split"]:
        """Divide the samples into splits whose images are in memory; a single one if they all are.

        The samples keep their order, and have only images and labels.
        """
        if not isinstance(self.images, Stored):
            yield self
            return
        for which in self.images.blocks():
            yield Split(self.images[which], self.labels[which])

    def pick(self, which: np.ndarray) -> tuple[Array, Array]:
        """Select images and labels by an index array on the host."""
        there = array_module(self.images).asarray(which)
        return self.images[there], self.labels[which if self.multi else there]

    def at(self, epoch: int) -> "Split":
        """Return the split for an epoch; only composed images change between epochs."""
        return self

    def cut(self, held_out: np.ndarray) -> tuple["Split", "Split"]:
        """Return two splits: the samples outside the mask (n,) and the samples inside it."""
        return self.take(~held_out), self.take(held_out)

    def sha256(self) -> str:
        """Compute a checksum of the images and labels to detect changes."""
        digest = hashlib.sha256()
        images = (block.images for block in self.blocks())
        for array, parts in ((self.images, images), (self.labels, [self.labels])):
            digest.update(f"{array.dtype.str} {array.shape} ".encode())
            for part in parts:
                digest.update(np.ascontiguousarray(to_host(part)).data)
        return digest.hexdigest()

    def take(self, which: np.ndarray | slice) -> "Split":
        """Select samples by an index array, in the order of its indices, or by a slice."""
        poses = None if self.poses is None else self.poses[which]
        names = None if self.names is None else self.names[which]
        groups = None if self.groups is None else self.groups[which]
        images = self.images
        images = images.take(which) if isinstance(images, Stored) else images[which]
        return Split(images, self.labels[which], poses, names, groups, self.scale)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training split, test split, and class names of a data set.

    Attributes
    ----------
    name : name of the data set
    train, test : the splits
    class_names : names of the classes; `class_names[k]` is that of class k
    by_class : whether the validation split is stratified, as small data sets require
    notes : sentences for the user about how the data was read
    skipped : pairs (file, reason) for the files that could not be used
    validation : validation split that the data defines, or None to cut one from `train`
    inverted : whether light and dark are swapped in all images
    """

    name: str
    train: Split
    test: Split
    class_names: tuple[str, ...]
    by_class: bool = False
    notes: tuple[str, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    validation: Split | None = None
    inverted: bool = False

    @property
    def multi(self) -> bool:
        """Whether the images are multi-label and can have any number of classes."""
        return self.train.multi

    def validation_count(self, size: int | float | None = None) -> int:
        """Return how many samples of the training split `cut_validation` holds out."""
        if self.validation is not None:
            return 0
        n, least = len(self.train), 0
        if size is None:
            size, least = VALIDATION_SHARE, len(np.unique(self.train.strata)) * self.by_class
        if isinstance(size, Integral):
            return int(size)
        if 0 < size < 1:
            return round(size * n) or least
        raise ValueError(
            f"a validation fraction must lie between 0 and 1, got {size}: "
            "give a number of samples as an integer"
        )

    def cut_validation(self, size: int | float | None = None, seed: int = 0) -> tuple[Split, Split]:
        """Divide the training split into a smaller training split and a validation split.

        `size` is a number of samples (int) or a fraction of the training split (float between 0
        and 1), by default `VALIDATION_SHARE`, or one sample per class if that rounds to none. If
        the data defines a validation split, no size can be chosen, and the training split is not
        divided.

        The selected samples depend only on `seed`, `size`, the number of samples and, if `by_class`
        is true, their labels. The order of the samples is preserved in both splits. The test split
        is not used.
        """
        if self.validation is not None:
            if size is None:
                return self.train, self.validation
            raise ValueError(
                f"{self.name} has its own validation set of {len(self.validation):,} images: leave"
                " --validation out"
            )
        n, count, given = len(self.train), self.validation_count(size), size
        size = VALIDATION_SHARE if size is None else size
        if not 1 <= count < n:
            raise ValueError(
                f"a validation split of {size} would take {count:,} of {n:,} training samples: "
                "validation and training need at least 1 sample each"
            )
        random = generator(seed, 0)
        if self.by_class:
            held_out = draw_by_class(self.train.strata, count, random, self.train.groups)
            left = count_classes(self.train.labels[~held_out], len(self.class_names))
            if not left.all():
                name = self.class_names[left.argmin()]
                raise ValueError(
                    f"class {name!r} has too few training images to hold one out for validation:"
                    " add images, or give --validation 0"
                    if given is None
                    else f"a validation split of {size} would leave no training image of class"
                    f" {name!r}: make it smaller, or add images"
                )
        else:
            held_out = np.zeros(n, dtype=bool)
            held_out[random.permutation(n)[:count]] = True
        return self.train.cut(held_out)


def generator(seed, *key):
    """Create a random generator from a seed and a key; different keys give independent generators.

    The first number of the key identifies the purpose: 0 validation split, 1 batches, 2 test split
    of custom data, 3 limit of custom data, 4 composed images, 5 affine transformations, 6 and 7
    images of the linear baseline.
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def count_classes(labels, classes: int) -> np.ndarray:
    """Count the samples of each class, and return an array (classes,).

    The labels have the same format as in `Split`.
    """
    if labels.ndim == 2:
        return labels.sum(axis=0, dtype=np.int64)
    return np.bincount(labels, minlength=classes)


def imbalanced(counts) -> bool:
    """Return whether numbers of samples of each class (classes,) are imbalanced."""
    return bool(counts.max() >= IMBALANCED * counts.min())


def mean_recall(right, present) -> float:
    """Return the balanced accuracy: the mean recall of the classes that have images.

    right, present (J,): number of correct predictions and number of images of each class.
    """
    there = np.asarray(present) > 0
    return float((np.asarray(right)[there] / np.asarray(present)[there]).mean())


def of_class(labels, k: int) -> np.ndarray:
    """Return a boolean mask (n,) that selects the samples of class k.

    The labels have the same format as in `Split`.
    """
    return labels[:, k] > 0 if labels.ndim == 2 else labels == k


def draw_by_class(labels, count: int, generator, groups=None) -> np.ndarray:
    """Draw a sample of size `count`, stratified by labels (n,), and return it as a mask (n,).

    The samples of each class are shuffled and spaced evenly between 0 and 1, and the `count`
    samples closest to 0 are drawn. Every class thus contributes one sample before any class
    contributes a second.

    If `groups` (n,) is given, whole groups are drawn instead, at least one per class, until the
    sample has at least `count` elements.
    """
    if groups is None:
        drawn = np.zeros(len(labels), dtype=bool)
        drawn[_order_by_class(labels, generator)[:count]] = True
        return drawn
    _, first, member, sizes = np.unique(
        groups, return_index=True, return_inverse=True, return_counts=True
    )
    order = _order_by_class(labels[first], generator)
    enough = 1 + np.searchsorted(np.cumsum(sizes[order]), count)
    drawn = np.zeros(len(first), dtype=bool)
    drawn[order[: max(enough, len(np.unique(labels)))]] = True
    return drawn[member]


def _order_by_class(labels, generator):
    """Return the indices of samples in the order in which `draw_by_class` draws them."""
    place = np.empty(len(labels))
    for label in np.unique(labels):
        which = np.flatnonzero(labels == label)
        place[generator.permutation(which)] = np.arange(len(which)) / len(which)
    return np.lexsort((generator.random(len(labels)), place))
