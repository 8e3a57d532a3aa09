"""Random rotation, shear, scaling and translation of digits, as in affNIST.

affNIST by Tijmen Tieleman (www.cs.toronto.edu/~tijmen/affNIST) consists of transformed MNIST digits
in images of 40×40 pixels. The ranges of rotation and shear are those of TensorFlow Federated's
`infinite_emnist`, which follows affNIST; the range of scale is about the same (0.8 to 1.25 there).
Digits are translated by whole pixels, so their shapes do not change, and all 28×28 pixels of a
digit stay inside the image.
"""

import numpy as np

from minicaps.data.dataset import Split, generator

SIZE = 40  # pixels, height and width
# Each value is drawn uniformly from its range. Rotation is in degrees, positive clockwise; shear
# moves x by shear · y; scale is drawn independently for width and height.
RANGES = {"rotation": (-20.0, 20.0), "shear": (-0.2, 0.2), "scale": (0.8, 1.2)}
MOST = 6  # largest translation in each direction, in pixels
BLOCK = 1000  # images transformed at once


def changed(split, kinds=tuple(RANGES), *, seed=0):
    """Apply random transformations to the images (n, C, H, W) of `split`, padded to 40×40 pixels.

    Every image is translated. The additional transformations are listed in `kinds`, which contains
    keys of `RANGES`. The random numbers depend only on the seed. The rotation angles, for example,
    stay the same when other transformations are added. Raises ValueError for an unknown kind.
    """
    if unknown := set(kinds) - RANGES.keys():
        raise ValueError(f"unknown kinds {sorted(unknown)}: choose from {', '.join(RANGES)}")
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
    """Compute the matrices (n, 2, 2) of clockwise rotations by `degrees` (n,).

    The matrices apply to points (x, y), with the y-axis pointing down.
    """
    angles = np.radians(degrees)
    cos, sin = np.cos(angles), np.sin(angles)
    return np.array([[cos, -sin], [sin, cos]]).transpose(2, 0, 1)


def transformed(images, matrices, moves, size=SIZE):
    """Apply affine transformations to images (n, C, H, W), and return images (n, C, size, size).

    A point (x, y) is mapped to `matrices` (n, 2, 2) · (x, y) + `moves` (n, 2). The origin is the
    center of the image; the x-axis points to the right, and the y-axis points down. Each output
    pixel is interpolated bilinearly from the four input pixels that surround its source position.
    Pixels outside the image are zero.
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
    x, y = x + (width - 1) / 2, y + (height - 1) / 2  # in the old image, (n, size·size)
    left, above = np.floor(x), np.floor(y)
    padded, each = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1))), np.arange(n)[:, None]
    found = 0
    for row, share_of_row in ((above, above + 1 - y), (above + 1, y - above)):
        for column, share in ((left, left + 1 - x), (left + 1, x - left)):
            r = np.clip(row + 1, 0, height + 1).astype(int)  # the padding is zero
            c = np.clip(column + 1, 0, width + 1).astype(int)
            found = found + (share_of_row * share)[..., None] * padded[each, :, r, c]
    pixels = found.reshape(n, size, size, -1).transpose(0, 3, 1, 2)
    return np.clip(pixels, 0, 1)
