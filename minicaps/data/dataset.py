"""What a data set is, and how its splits are cut."""

import hashlib
from dataclasses import dataclass, replace
from numbers import Integral

import numpy as np

from minicaps.backend import Array, Device, array_module, to_host


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

    def on(self, device: Device) -> "Split":
        """With its pixels on a device, and its labels, unless they are of several classes: from
        these follows on the host what a decoder draws."""
        labels = self.labels if self.multi else device.put(self.labels)
        return replace(self, images=device.put(self.images), labels=labels)

    def pick(self, which: np.ndarray) -> tuple[Array, Array]:
        """Pictures and labels that an index array of the host names, on the device where they
        are."""
        there = array_module(self.images).asarray(which)
        return self.images[there], self.labels[which if self.multi else there]

    def at(self, epoch: int) -> "Split":
        """The same in each epoch; composed pictures are not."""
        return self

    def cut(self, held_out: np.ndarray) -> tuple["Split", "Split"]:
        """Cut by a mask (n,): the samples outside, and those inside."""
        return self.take(~held_out), self.take(held_out)

    def sha256(self) -> str:
        """A checksum of pictures and labels, to tell whether they are still the same."""
        digest = hashlib.sha256()
        for array in (self.images, self.labels):
            digest.update(f"{array.dtype.str} {array.shape} ".encode())
            digest.update(np.ascontiguousarray(to_host(array)).data)
        return digest.hexdigest()

    def take(self, which: np.ndarray | slice) -> "Split":
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
