"""Multi-label images made by overlaying or joining single images.

Composed images are computed on demand from the indices and offsets of their members, so only the
single images take up memory. Each member can also be rendered alone to serve as a target for the
decoder.
"""

import hashlib
from dataclasses import dataclass, replace

import numpy as np

from minicaps.backend import array_module, to_host
from minicaps.data.batches import shifted
from minicaps.data.dataset import Split, generator
from minicaps.data.stored import on_device

LAYOUTS = ("overlap", "below", "beside")
BLOCK = 500  # images composed at once, to limit the memory of their members
SHIFT = {"overlap": 4, "below": 0, "beside": 0}  # default in pixels


@dataclass(frozen=True, eq=False)
class Composed:
    """Set of n images, each composed of k members, as returned by `compose`.

    Attributes
    ----------
    single : the N single images
    members : shape (n, k)
        Indices of the single images in each composed image, all of different classes.
    offsets : shape (n, k, 2)
        Shift (down, right) of each member, in pixels.
    labels : uint8, shape (n, J), 1 for each class that is present
    layout, shift : arguments of `compose`
    seed, epoch : origin of the random members and offsets
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
    poses = groups = None

    def __len__(self):
        return len(self.members)

    @property
    def shape(self):
        """Shape (channels, height, width) of a composed image."""
        (height, width), count = self._cell(), self.members.shape[1]
        rows = count if self.layout == "below" else 1
        columns = count if self.layout == "beside" else 1
        return self.single.shape[0], rows * height, columns * width

    @property
    def pixels(self):
        """Pixels (N, channels, height, width) of the single images."""
        return self.single.images

    @property
    def strata(self):
        """Class (N,) of each single image."""
        return self.single.labels

    @property
    def nbytes(self) -> int:
        """Memory used by the pixels, in bytes."""
        return self.single.images.nbytes

    @property
    def names(self):
        """Names of each image's members, joined by " + ", or None if the members have no names."""
        if self.single.names is None:
            return None
        return np.array([" + ".join(map(str, row)) for row in self.single.names[self.members]])

    @property
    def scale(self):
        """Values (black, white) that became 0 and 1 in the single images, or None."""
        return self.single.scale

    def parts(self, which):
        """Render each member of the images `which` alone, at its position in the composed image.

        Returns an array (b, k, channels, height, width) on the device of the single images. The
        members of an image are ordered by class.
        """
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
        """Compose the images with indices `which`, and return them with their labels.

        Where members overlap, the brighter pixel is used. The labels are on the host.
        """
        return self.parts(which).max(axis=1), self.labels[which]

    def take(self, which) -> Split:
        """Compose the images with indices `which`, and return them as a `Split`."""
        blocks = [which[start : start + BLOCK] for start in range(0, len(which), BLOCK)]
        images = np.concatenate([to_host(self.pick(block)[0]) for block in blocks])
        names = None if self.names is None else self.names[which]
        return Split(images, self.labels[which], names=names)

    def sha256(self) -> str:
        """Compute a checksum of the single images, the layout, the members and their offsets."""
        digest = hashlib.sha256(self.single.sha256().encode())
        digest.update(f"{self.layout} {self.shift} ".encode())
        for array in (self.members, self.offsets):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def cut(self, held_out) -> tuple["Composed", "Composed"]:
        """Divide the single images into two parts by a mask (N,), and compose each part separately.

        The two parts have no single images in common.
        """
        rest, held_out = self.single.cut(held_out)
        return self._again(single=rest), self._again(single=held_out)

    def at(self, epoch) -> "Composed":
        """Return the set of images composed for the given epoch.

        Every epoch uses the same single images in different combinations.
        """
        return self if epoch == self.epoch else self._again(epoch=epoch)

    def on(self, device) -> "Composed":
        """Return a copy whose pixels are on `device`; all other arrays stay on the host."""
        images = on_device(self.single.images, device)
        return replace(self, single=replace(self.single, images=images))

    def _cell(self):
        """Compute the height and width of the cell within which a member is shifted."""
        _, height, width = self.single.shape
        return height + 2 * self.shift, width + 2 * self.shift

    def _again(self, **changes):
        settings = {name: getattr(self, name) for name in ("layout", "shift", "seed", "epoch")}
        settings |= {"single": self.single, "count": self.members.shape[1], **changes}
        return compose(classes=self.labels.shape[1], **settings)


def compose(single, classes, *, count=2, layout="overlap", shift=None, seed=0, epoch=0) -> Composed:
    """Compose each image from `count` single images of different classes.

    The number of composed images equals the number of single images, and each single image is used
    at least once. All random numbers are determined by `seed` and `epoch`.

    Parameters
    ----------
    single : `Split` with one label per image
    classes : number of classes
    count : number of members per image, at least 2
    layout : "overlap", "below" or "beside"
        "overlap" overlays the members as in MultiMNIST (Sabour et al. 2017, section 6); "below" and
        "beside" join them in that direction.
    shift : largest random shift of a member in each direction, in pixels
        Each member is shifted independently in a cell that is larger by `shift` on each side. If
        None, the shift is 4 for "overlap" and 0 otherwise.
    seed, epoch : source of the random numbers

    Returns
    -------
    A `Composed` set of images.

    Raises
    ------
    ValueError
        If the layout is unknown or `count` is not between 2 and the number of classes present.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"unknown layout {layout!r}: choose {', '.join(LAYOUTS)}")
    shift = SHIFT[layout] if shift is None else shift
    present = len(np.unique(single.labels))
    if not 2 <= count <= present:
        raise ValueError(
            f"cannot compose images of {count} different classes: choose at least 2, and at most"
            f" the {present} classes of these images"
        )
    random = generator(seed, 4, epoch)
    members = _draw_members(single.labels, classes, count, random)
    offsets = random.integers(-shift, shift + 1, (*members.shape, 2))
    labels = np.zeros((len(members), classes), dtype=np.uint8)
    np.put_along_axis(labels, single.labels[members], 1, axis=1)
    return Composed(single, members, offsets, labels, layout, shift, seed, epoch)


def _draw_members(labels, classes, count, random):
    """Draw the members (n, count) of all composed images.

    The members of image i are sample i and samples of other classes, in random order. All other
    classes are equally probable.
    """
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
    """Compute the mean overlap, from 0 to 1, between the two members of composed images.

    parts: (n, 2, channels, height, width). A member's bounding box encloses all of its pixels
    brighter than `ink`. The overlap of two boxes is the area of their intersection divided by the
    mean of their areas.
    """
    inside = (parts > ink).any(axis=2)
    common = areas = np.array(1)
    for axis in (2, 3):  # height, width
        seen = inside.any(axis=5 - axis)
        first, last = seen.argmax(axis=-1), seen.shape[-1] - seen[..., ::-1].argmax(axis=-1)
        areas = areas * (last - first)
        common = common * np.maximum(last.min(axis=1) - first.max(axis=1), 0)
    return float((common / areas.mean(axis=1)).mean())
