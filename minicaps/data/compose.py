"""Pictures with several classes, composed of single ones: laid over each other, or joined.

A composed picture is made when it is asked for, from the indices and offsets of its members; only
the single pictures take memory. Each member can also be had alone, as a decoder shall redraw it.
"""

import hashlib
from dataclasses import dataclass, replace

import numpy as np

from minicaps.backend import array_module, to_host
from minicaps.data.batches import shifted
from minicaps.data.dataset import Split, generator

LAYOUTS = ("overlap", "below", "beside")
BLOCK = 500  # pictures that are composed at once: their members need memory for a moment
SHIFT = {"overlap": 4, "below": 0, "beside": 0}  # pixels, by default


@dataclass(frozen=True, eq=False)
class Composed:
    """n pictures of several classes, each of k members; what `compose` makes.

    single: the N single pictures. members (n, k): which of them each is made of, k of different
    classes. offsets (n, k, 2): (down, right), how far each is moved. labels (n, J) uint8: 1 for
    each class that is present. seed, epoch: what members and offsets were drawn from.
    """

    single: Split
    members: np.ndarray
    offsets: np.ndarray
    labels: np.ndarray
    layout: str
    shift: int
    seed: int
    epoch: int

    multi = True
    poses = None

    def __len__(self):
        return len(self.members)

    @property
    def shape(self):
        """(channels, height, width) of a composed picture."""
        (height, width), count = self._cell(), self.members.shape[1]
        rows = count if self.layout == "below" else 1
        columns = count if self.layout == "beside" else 1
        return self.single.shape[0], rows * height, columns * width

    @property
    def pixels(self):
        """The single pictures, (N, channels, height, width)."""
        return self.single.images

    @property
    def strata(self):
        """The class (n,) of each single picture."""
        return self.single.labels

    @property
    def nbytes(self) -> int:
        """Memory that the pixels take."""
        return self.single.images.nbytes

    @property
    def names(self):
        """What each picture is made of: the names of its members; None if they have none."""
        if self.single.names is None:
            return None
        return np.array([" + ".join(map(str, row)) for row in self.single.names[self.members]])

    def parts(self, which):
        """The members of pictures `which`, each alone at its place: (b, k, channels, height,
        width), on the device of the single pictures, in the order of their classes."""
        images, members = self.single.images, self.members[which]
        xp, (height, width) = array_module(images), self._cell()
        parts = xp.zeros((*members.shape, *self.shape), dtype=images.dtype)
        edges = ((0, 0), (0, 0), (self.shift, self.shift), (self.shift, self.shift))
        order = np.argsort(self.single.labels[members], axis=1)
        for place in range(members.shape[1]):
            moved = xp.pad(images[xp.asarray(members[:, place])], edges)
            moved = shifted(moved, self.offsets[which, place])
            row = place * height if self.layout == "below" else 0
            column = place * width if self.layout == "beside" else 0
            rank = xp.asarray((order == place).argmax(axis=1))
            window = (slice(row, row + height), slice(column, column + width))
            parts[(xp.arange(len(members)), rank, slice(None), *window)] = moved
        return parts

    def pick(self, which):
        """The composed pictures `which` (where members meet, the brighter is seen), and their
        labels, on the host."""
        return self.parts(which).max(axis=1), self.labels[which]

    def take(self, which) -> Split:
        """The composed pictures that an index array names, as a `Split`, an array of pixels."""
        blocks = [which[start : start + BLOCK] for start in range(0, len(which), BLOCK)]
        images = np.concatenate([to_host(self.pick(block)[0]) for block in blocks])
        names = None if self.names is None else self.names[which]
        return Split(images, self.labels[which], names=names)

    def sha256(self) -> str:
        """A checksum of what is composed, and of how."""
        digest = hashlib.sha256(self.single.sha256().encode())
        digest.update(f"{self.layout} {self.shift} ".encode())
        for array in (self.members, self.offsets):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def cut(self, held_out) -> tuple["Composed", "Composed"]:
        """Cut by a mask (N,) of the single pictures, and compose each part anew: no single picture
        is in both."""
        rest, held_out = self.single.cut(held_out)
        return self._again(single=rest), self._again(single=held_out)

    def at(self, epoch) -> "Composed":
        """The same single pictures in the combinations of an epoch."""
        return self if epoch == self.epoch else self._again(epoch=epoch)

    def on(self, device) -> "Composed":
        """With the pixels on a device; what is drawn from random numbers stays on the host."""
        return replace(self, single=replace(self.single, images=device.put(self.single.images)))

    def _cell(self):
        """Height and width of the room that a member moves in."""
        _, height, width = self.single.shape
        return height + 2 * self.shift, width + 2 * self.shift

    def _again(self, **changes):
        settings = {name: getattr(self, name) for name in ("layout", "shift", "seed", "epoch")}
        settings |= {"single": self.single, "count": self.members.shape[1], **changes}
        return compose(classes=self.labels.shape[1], **settings)


def compose(single, classes, *, count=2, layout="overlap", shift=None, seed=0, epoch=0) -> Composed:
    """Compose pictures of `count` different classes: as many as there are single pictures, each of
    which is in one at least.

    single: a `Split` with one label each. layout: "overlap" lays them over each other as in
    MultiMNIST (Sabour et al. 2017, section 6), "below" and "beside" join them in that direction.
    shift: each is moved by up to so many pixels, drawn independently, in a cell that is larger by
    it on each side; None is 4 for "overlap" and else 0. All that is random is drawn from (seed,
    epoch). Raises ValueError for what cannot be composed.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"unknown layout {layout!r}: choose {', '.join(LAYOUTS)}")
    shift = SHIFT[layout] if shift is None else shift
    present = len(np.unique(single.labels))
    if not 2 <= count <= present:
        raise ValueError(
            f"a picture is composed of 2 or more different classes, not of {count}; these pictures"
            f" have {present}"
        )
    random = generator(seed, 4, epoch)
    members = _draw_members(single.labels, classes, count, random)
    offsets = random.integers(-shift, shift + 1, (*members.shape, 2))
    labels = np.zeros((len(members), classes), dtype=np.uint8)
    np.put_along_axis(labels, single.labels[members], 1, axis=1)
    return Composed(single, members, offsets, labels, layout, shift, seed, epoch)


def _draw_members(labels, classes, count, random):
    """Indices (n, count): sample i itself, then others, of different classes, all classes with the
    same chance, in random order."""
    n, sizes = len(labels), np.bincount(labels, minlength=classes)
    turn = random.random((n, classes))
    turn[:, sizes == 0] = 2  # never
    turn[np.arange(n), labels] = -1  # first
    chosen = np.argsort(turn, axis=1)[:, :count]
    by_class, starts = np.argsort(labels, kind="stable"), np.cumsum(sizes) - sizes
    place = (random.random((n, count)) * sizes[chosen]).astype(np.int64)
    members = by_class[starts[chosen] + place]
    members[:, 0] = np.arange(n)
    return random.permuted(members, axis=1)


def box_overlap(parts, *, ink=0.1) -> float:
    """How much the members of composed pictures overlap, from 0 to 1, in the mean.

    parts (n, 2, channels, height, width). The box of a member holds its pixels above `ink`; the
    overlap of two boxes is their common area by the mean of their areas.
    """
    inside = (parts > ink).any(axis=2)
    common = areas = np.array(1)
    for axis in (2, 3):  # along the height, along the width
        seen = inside.any(axis=5 - axis)
        first, last = seen.argmax(axis=-1), seen.shape[-1] - seen[..., ::-1].argmax(axis=-1)
        areas = areas * (last - first)
        common = common * np.maximum(last.min(axis=1) - first.max(axis=1), 0)
    return float((common / areas.mean(axis=1)).mean())
