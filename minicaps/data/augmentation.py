"""Random changes of training images: shift, rotation, zoom, mirroring and brightness.

All random numbers are drawn by NumPy on the host. Images are changed on the device that holds them,
and the CPU and the GPU get the same bits.
"""

from dataclasses import dataclass, fields

import numpy as np

from minicaps.backend import Array, array_module
from minicaps.data.affine import interpolated, rotation

FLIPS = ("none", "horizontal", "vertical", "both")


@dataclass(frozen=True)
class Augmentation:
    """Ranges from which the changes of each training image are drawn; by default, none.

    Attributes
    ----------
    shift : largest shift along each axis, in pixels
        The shift is an integer drawn from -shift..shift.
    rotate : largest rotation about the center, in degrees, 0 to 180
        The angle is drawn uniformly from -rotate..rotate.
    zoom : largest relative change of size about the center, at least 0 and below 1
        The factor is drawn uniformly from 1 - zoom..1 + zoom.
    flip : axes along which an image is mirrored, each with probability 1/2; one of `FLIPS`
        "horizontal" swaps left and right.
    brightness : largest relative change of brightness, at least 0 and below 1
        Pixels are multiplied by a factor drawn uniformly from 1 - brightness..1 + brightness and
        clipped to 1, so black stays black.

    Raises ValueError if a value is outside its range.
    """

    shift: int = 0
    rotate: float = 0.0
    zoom: float = 0.0
    flip: str = "none"
    brightness: float = 0.0

    def __post_init__(self):
        if not 0 <= self.rotate <= 180:
            raise ValueError(f"rotate must be 0 to 180 degrees, got {self.rotate}")
        for name in ("zoom", "brightness"):
            if not 0 <= (value := getattr(self, name)) < 1:
                raise ValueError(f"{name} must be at least 0 and below 1, got {value}")
        if self.flip not in FLIPS:
            raise ValueError(f"flip must be one of {', '.join(FLIPS)}, got {self.flip!r}")

    def check_size(self, height: int, width: int):
        """Raise ValueError if the shift could move an image out of its own frame."""
        if not 0 <= self.shift < min(height, width):
            largest = min(height, width) - 1
            raise ValueError(
                f"shift must be 0 to {largest} pixels for these images, got {self.shift}"
            )

    @property
    def active(self) -> dict:
        """The changes that are not off, by name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value not in (0, "none")}

    @property
    def resamples(self) -> bool:
        """Whether more than a shift moves pixels."""
        return bool(self.active.keys() & {"rotate", "zoom", "flip"})

    def draw(self, count: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draw the matrices (count, 2, 2) and the factors of brightness (count,) of a batch.

        The matrices are those of `transformed`. The same numbers are drawn whatever the ranges, so
        switching one change on leaves the others as they were.
        """
        turn, size, light = random.uniform(-1, 1, (3, count))
        axes = [[self.flip in (name, "both")] for name in ("horizontal", "vertical")]
        mirrored = (random.random((2, count)) < 0.5) & axes
        scale = (1 + self.zoom * size) * np.where(mirrored, -1, 1)  # of x and y, (2, count)
        matrices = rotation(self.rotate * turn) * scale.T[:, None, :]
        return matrices, 1 + self.brightness * light


def transformed(images: Array, matrices: np.ndarray, offsets: np.ndarray, fill: Array) -> Array:
    """Apply affine transformations to images (n, C, H, W) on any device.

    A point (x, y) is mapped to `matrices` (n, 2, 2) · (x, y) and then moved by `offsets` (n, 2),
    (down, right), in pixels. The origin is the center of the image; the x-axis points to the right,
    and the y-axis points down. The result is interpolated bilinearly. Pixels outside an image have
    the color `fill` (n, C, 1, 1). Where source positions are whole pixels, the result is exact.
    """
    xp, (n, _, height, width) = array_module(images), images.shape
    back, moves = np.linalg.inv(matrices), np.asarray(offsets)[:, ::-1, None]  # moves: x, y
    middle = np.array([[(width - 1) / 2], [(height - 1) / 2]])
    # New positions about the center -> old ones in pixels; (2, 3, n, 1, 1), copied in one piece
    mapping = np.concatenate([back, middle - back @ moves], axis=2).transpose(1, 2, 0)
    mapping = xp.asarray(mapping[..., None, None].astype(images.dtype))
    across = xp.arange(width, dtype=images.dtype) - (width - 1) / 2
    down = xp.arange(height, dtype=images.dtype)[:, None] - (height - 1) / 2
    size = height * width
    x, y = ((by_x * across + start + by_y * down).reshape(n, size) for by_x, by_y, start in mapping)
    return xp.clip(interpolated(images, x, y, fill).reshape(images.shape), 0, 1)


def brightened(images: Array, factors: np.ndarray) -> Array:
    """Multiply each image (n, C, H, W) by its factor (n,), and clip the result to 1."""
    xp = array_module(images)
    factors = xp.asarray(factors.astype(images.dtype))[:, None, None, None]
    return xp.minimum(images * factors, 1)
