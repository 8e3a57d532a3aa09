"""Random rotation, shear, scaling and translation of digits, as in affNIST.

affNIST by Tijmen Tieleman (www.cs.toronto.edu/~tijmen/affNIST) consists of transformed MNIST digits
in images of 40×40 pixels. The ranges of rotation and shear are those of TensorFlow Federated's
`infinite_emnist`, which follows affNIST; the range of scale is about the same (0.8 to 1.25 there).
Digits are translated by whole pixels, so their shapes do not change, and all 28×28 pixels of a
digit stay inside the image.
"""

import numpy as np

from minicaps.backend import Array, array_module
from minicaps.data.dataset import Split, generator

SIZE = 40  # pixels, height and width
# Each value is drawn uniformly from its range. Rotation is in degrees, positive clockwise; shear
# moves x by shear · y; scale is drawn independently for width and height.
RANGES = {"rotation": (-20.0, 20.0), "shear": (-0.2, 0.2), "scale": (0.8, 1.2)}
MOST = 6  # largest translation in each direction, in pixels
BLOCK = 1000  # images transformed at once


def changed(split, kinds=tuple(RANGES), *, least=0, most=MOST, seed=0):
    """Apply random transformations to the images (n, C, H, W) of `split`, padded to 40×40 pixels.

    Every image is translated by up to `most` pixels in each direction, and by at least `least`
    pixels horizontally or vertically. The additional transformations are listed in `kinds`, which
    contains keys of `RANGES`. The random numbers depend only on the seed, `least` and `most`. The
    rotation angles, for example, stay the same when other transformations are added. Raises
    ValueError for an unknown kind, or if `least` exceeds `most`.
    """
    if unknown := set(kinds) - RANGES.keys():
        raise ValueError(f"unknown kinds {sorted(unknown)}: choose from {', '.join(RANGES)}")
    if least > most:
        raise ValueError(f"no translation of at least {least} and at most {most} pixels")
    random, n = generator(seed, 5), len(split)
    moves = random.integers(-most, most + 1, (n, 2))
    while (near := np.abs(moves).max(axis=1) < least).any():
        moves[near] = random.integers(-most, most + 1, (near.sum(), 2))
    drawn = {kind: random.uniform(*RANGES[kind], (n, 2)) for kind in RANGES}
    matrices = np.tile(np.eye(2), (n, 1, 1))
    if "scale" in kinds:
        matrices = drawn["scale"][:, :, None] * matrices
    if "shear" in kinds:
        matrices[:, 0] += drawn["shear"][:, :1] * matrices[:, 1]
    if "rotation" in kinds:
        matrices = rotation(drawn["rotation"][:, 0]) @ matrices
    return Split(transformed(split.images, matrices, moves.astype(float)), split.labels)


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
    *count, height, width = images.shape
    across, down = np.meshgrid(np.arange(size), np.arange(size))
    new = np.stack([across.ravel(), down.ravel()]) - (size - 1) / 2
    x, y = (np.linalg.inv(matrices) @ (new - moves[:, :, None])).swapaxes(0, 1)
    x, y = x + (width - 1) / 2, y + (height - 1) / 2  # in the old image, (n, size·size)
    return np.clip(interpolated(images, x, y).reshape(*count, size, size), 0, 1)


def interpolated(images: Array, x: Array, y: Array, fill: Array | float = 0) -> Array:
    """Interpolate images (n, C, H, W) bilinearly at points (n, P), and return (n, C, P).

    The pixel in row i and column k is at y = i and x = k. Pixels outside an image have the value
    `fill`, a number or an array (n, C, 1, 1). All arrays are on the same device, which may be a
    GPU.
    """
    xp, (n, channels, height, width) = array_module(images), images.shape
    x, y = xp.clip(x, -1, width), xp.clip(y, -1, height)  # beyond, all is outside
    left, above = xp.floor(x), xp.floor(y)
    padded = xp.empty((n, channels, height + 3, width + 3), images.dtype)
    padded[:] = fill
    padded[:, :, 1:-2, 1:-2] = images
    row, image = width + 3, (height + 3) * (width + 3)  # their pixels, padded
    first = ((above + 1).astype(int) * row + (left + 1).astype(int))[:, None]
    first = first + xp.arange(n * channels).reshape(n, channels, 1) * image
    padded, found = padded.reshape(-1), 0
    for down, share_of_row in ((0, above + 1 - y), (row, y - above)):
        for right, share in ((0, left + 1 - x), (1, x - left)):
            pixels = padded[down + right :].take(first)
            found = found + (share_of_row * share)[:, None] * pixels
    return found
