"""What networks ask before they are built, and of their images."""

from minicaps.ops.shape import output_size


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


def check_images(images, input_shape):
    """Refuse images that are not (B, C, H, W) with (C, H, W) = input_shape."""
    if images.shape[1:] != input_shape:
        raise ValueError(
            f"this network is for images (B, C, H, W) with (C, H, W) = {input_shape},"
            f" not {images.shape}"
        )
