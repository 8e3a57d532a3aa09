"""What networks ask before they are built, and of their images."""

from typing import NamedTuple

from minicaps.ops.shape import output_size

# Options of the routing to the classes, with their defaults; None is that of the routing
ROUTING_OPTIONS = {
    "routing": "agreement",
    "iterations": None,
    "update": None,
    "gradient": None,
    "inverse_temperature": None,
}


class ChildrenGrid(NamedTuple):
    """Where the children of the class capsules lie: `rows` × `columns` positions, `types` at each.

    Children are ordered by row, column, type. Row (or column) k looks at pixels around
    `first` + `step`·k, where 0 is the middle of the first pixel.
    """

    rows: int
    columns: int
    types: int
    first: float
    step: int


def sizes_of(presets, name):
    """Return the sizes called `name`."""
    if name not in presets:
        raise ValueError(f"unknown preset {name!r}: choose {', '.join(presets)}")
    return presets[name]


def grid(image, layers):
    """Size of the map after layers of (kernel, stride); refuse images (H, W) that are too small."""
    least = 1
    for kernel, stride in reversed(layers):
        least = (least - 1) * stride + kernel
    if min(image) < least:
        raise ValueError(
            f"images of {image[0]}×{image[1]} pixels are too small for this network:"
            f" it needs at least {least}×{least}"
        )
    for kernel, stride in layers:
        image = [output_size(n, kernel, stride) for n in image]
    return image


def children_grid(image, layers, types) -> ChildrenGrid:
    """The grid after layers of (kernel, stride) without padding, on images (H, W)."""
    first, step = 0.0, 1
    for kernel, stride in layers:
        first += step * (kernel - 1) / 2
        step *= stride
    rows, columns = grid(image, layers)
    return ChildrenGrid(rows, columns, types, first, step)


def check_images(images, input_shape):
    """Refuse images that are not (B, C, H, W) with (C, H, W) = input_shape."""
    if images.shape[1:] != input_shape:
        raise ValueError(
            f"this network is for images (B, C, H, W) with (C, H, W) = {input_shape},"
            f" not {images.shape}"
        )
