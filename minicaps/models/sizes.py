"""Compute the sizes of layers and grids, and check the shapes of images."""

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
    """Grid of child capsules: `types` capsules at each of `rows` × `columns` positions.

    Children are ordered by row, column and type. The receptive field of row (or column) k is
    centered at `first` + `step`·k, where 0 is the center of the first pixel.
    """

    rows: int
    columns: int
    types: int
    first: float
    step: int


def sizes_of(presets, name):
    """Return the preset with the given name, or raise ValueError if it does not exist."""
    if name not in presets:
        raise ValueError(f"unknown preset {name!r}: choose {', '.join(presets)}")
    return presets[name]


def grid(image, layers):
    """Compute the size of the feature map for images of size (H, W).

    Each layer is given as (kernel, stride) and has no padding. Raises ValueError if the images are
    too small.
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


def seen(side, layers, margin=0) -> int:
    """Return how many of the first rows of an image with `side` rows reach the last layer.

    The same holds for columns. Each layer is given as (kernel, stride) and has no padding. What
    remains at the end of a side after the last stride is not seen; of a side that is too small for
    the layers, nothing is. margin: pixels by which the layers see farther, because padding is left
    out of `layers`.
    """
    field = step = 1  # size of a receptive field, and distance between two of them
    places = side
    for kernel, stride in layers:
        places = output_size(places, kernel, stride)
        field += step * (kernel - 1)
        step *= stride
    return min(side, field + step * (places - 1) + margin) if places > 0 else 0


def whole(side, layers, margin=0) -> int:
    """Return the smallest side, at least `side`, of which all rows are seen (see `seen`)."""
    while seen(side, layers, margin) < side:
        side += 1
    return side


def children_grid(image, layers, types) -> ChildrenGrid:
    """Compute the grid of child capsules for images of size (H, W).

    Each layer is given as (kernel, stride) and has no padding.
    """
    first, step = 0.0, 1
    for kernel, stride in layers:
        first += step * (kernel - 1) / 2
        step *= stride
    rows, columns = grid(image, layers)
    return ChildrenGrid(rows, columns, types, first, step)


def check_images(images, input_shape):
    """Raise ValueError if the shape of images (B, C, H, W) does not match `input_shape`."""
    if images.shape[1:] != input_shape:
        raise ValueError(
            f"this network expects images (B, C, H, W) with (C, H, W) = {input_shape},"
            f" got shape {images.shape}"
        )
