"""Digits that are rotated, sheared, scaled and moved, as those of affNIST are.

affNIST (T. Tieleman, www.cs.toronto.edu/~tijmen/affNIST) puts changed digits of MNIST into pictures
of 40×40. The ranges of rotation and shear are those of TensorFlow Federated's `infinite_emnist`,
which follows it; that of scale is about the same (there 0.8 to 1.25). Translations are those that a
digit of 28×28 has without leaving such a picture, in whole pixels, so that they alone change no
digit.
"""

import numpy as np

from minicaps.data.dataset import Split, generator

SIZE = 40  # pixels, height and width
# Each is drawn uniformly from its range. Rotation in degrees, positive is clockwise; shear: x moves
# by shear · y; scale: of the width and of the height, drawn by themselves
RANGES = {"rotation": (-20.0, 20.0), "shear": (-0.2, 0.2), "scale": (0.8, 1.2)}
MOST = 6  # pixels of translation in each direction
BLOCK = 1000  # pictures that are transformed at once


def changed(split, kinds=tuple(RANGES), *, seed=0):
    """The pictures of `split` (n, C, H, W), each moved in one of 40×40, and changed at random in
    its `kinds`, of `RANGES`; () only moves them.

    What is drawn depends on the seed alone: the angles are the same whichever other kinds go with
    them. Raises ValueError for another kind.
    """
    if unknown := set(kinds) - RANGES.keys():
        raise ValueError(f"unknown kinds {sorted(unknown)}: there are {', '.join(RANGES)}")
    random, n = generator(seed, 5), len(split)
    moves = random.integers(-MOST, MOST + 1, (n, 2)).astype(float)
    drawn = {kind: random.uniform(*RANGES[kind], (n, 2)) for kind in RANGES}
    matrices = np.tile(np.eye(2), (n, 1, 1))
    if "scale" in kinds:
        matrices = drawn["scale"][:, :, None] * matrices
    if "shear" in kinds:
        matrices[:, 0] += drawn["shear"][:, :1] * matrices[:, 1]
    if "rotation" in kinds:
        matrices = rotation(drawn["rotation"][:, 0]) @ matrices
    return Split(transformed(split.images, matrices, moves), split.labels)


def rotation(degrees):
    """Matrices (n, 2, 2) that turn (x, y), y downwards, clockwise by `degrees` (n,)."""
    angles = np.radians(degrees)
    cos, sin = np.cos(angles), np.sin(angles)
    return np.array([[cos, -sin], [sin, cos]]).transpose(2, 0, 1)


def transformed(images, matrices, moves, size=SIZE):
    """Images (n, C, H, W) in which the point (x, y), counted from the middle, x to the right and y
    downwards, has gone to `matrices` (n, 2, 2) · (x, y) + `moves` (n, 2): (n, C, size, size).

    Each new pixel is read where it came from, between four old ones in proportion (bilinear);
    outside the picture there are zeros.
    """
    made = np.empty((*images.shape[:2], size, size), images.dtype)
    for start in range(0, len(images), BLOCK):
        b = slice(start, start + BLOCK)
        made[b] = _read(images[b], matrices[b], moves[b], size)
    return made


def _read(images, matrices, moves, size):
    n, _, height, width = images.shape
    across, down = np.meshgrid(np.arange(size), np.arange(size))
    new = np.stack([across.ravel(), down.ravel()]) - (size - 1) / 2
    x, y = (np.linalg.inv(matrices) @ (new - moves[:, :, None])).swapaxes(0, 1)
    x, y = x + (width - 1) / 2, y + (height - 1) / 2  # in the old picture, (n, size·size)
    left, above = np.floor(x), np.floor(y)
    padded, each = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1))), np.arange(n)[:, None]
    found = 0
    for row, share_of_row in ((above, above + 1 - y), (above + 1, y - above)):
        for column, share in ((left, left + 1 - x), (left + 1, x - left)):
            r = np.clip(row + 1, 0, height + 1).astype(int)  # the edges are zeros
            c = np.clip(column + 1, 0, width + 1).astype(int)
            found = found + (share_of_row * share)[..., None] * padded[each, :, r, c]
    pixels = found.reshape(n, size, size, -1).transpose(0, 3, 1, 2)
    return np.clip(pixels, 0, 1)
