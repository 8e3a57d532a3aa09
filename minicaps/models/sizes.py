"""Sizes of layers and grids, and checks of image shapes."""

from typing import NamedTuple

from minicaps.ops.shape import output_size

# Options of the routing to the classes with their defaults; None: the routing's own default
ROUTING_OPTIONS = {
    "routing": "agreement",
    "iterations": None,
    "update": None,
    "gradient": None,
    "inverse_temperature": None,
}


class ChildrenGrid(NamedTuple):
    """Grid of the class capsules' children: `rows` × `columns` positions with `types` at each.

    Children are ordered by row, column and type. The receptive field of row (or column) k is
    centered at `first` + `step`·k, where 0 is the center of the first pixel.
    """

    rows: int
    columns: int
    types: int
    first: float
    step: int


def sizes_of(presets, name):
    """Return the preset `name`, or raise ValueError if there is none."""
    if name not in presets:
        raise ValueError(f"unknown preset {name!r}: choose {', '.join(presets)}")
    return presets[name]


def grid(image, layers):
    """Compute the size of the map after layers of (kernel, stride) on images of size (H, W).

    Raises ValueError if the images are too small.
    """
    least = 1
    for kernel, stride in reversed(layers):
        least = (least - 1) * stride + kernel
    if min(image) < least:
        raise ValueError(
            f"images of {image[0]}×{image[1]} pixels are too small for this network:"
            f" it needs at least {least}×{least} pixels"
        )
    for kernel, stride in layers:
        image = [output_size(n, kernel, stride) for n in image]
    return image


def children_grid(image, layers, types) -> ChildrenGrid:
    """Compute the grid after layers of (kernel, stride) without padding for (H, W) images."""
    first, step = 0.0, 1
    for kernel, stride in layers:
        first += step * (kernel - 1) / 2
        step *= stride
    rows, columns = grid(image, layers)
    return ChildrenGrid(rows, columns, types, first, step)


def check_images(images, input_shape):
    """Raise ValueError unless images have shape (B, C, H, W) with (C, H, W) = input_shape."""
    if images.shape[1:] != input_shape:
        raise ValueError(
            f"this network expects images (B, C, H, W) with (C, H, W) = {input_shape},"
            f" got shape {images.shape}"
        )
