"""Scale, invert, center and resize images to match the input of a trained network."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from minicaps.data.images import centre, fit, ground, has_light_border
from minicaps.data.own.arrays import ROUNDING, channels_first, in_range, plain_array
from minicaps.errors import DataError

WHITE = {"b": 1, "u": 255, "i": 255}  # value of white by kind of dtype, except for uint16


@dataclass(frozen=True)
class Preprocessing:
    """Properties of the images that a network was trained on.

    Attributes
    ----------
    shape : (C, H, W)
    background : "dark", "light" or "mixed"; None if unknown
        After the inversion, if the images were inverted. It is "mixed" for photographs, too.
    centred : whether the ink of the images was centered, as in MNIST
    inverted : whether all images were inverted; None if unknown, as in older checkpoints
    fill : value with which resized images are padded, or None for the color of their border
    scale : values (black, white) of arrays that became 0 and 1, or None
    """

    shape: tuple[int, ...]
    background: str | None = None
    centred: bool = False
    inverted: bool | None = None
    fill: float | None = None
    scale: tuple[float, float] | None = None

    def differs_from(self, background: str | None) -> bool:
        """Return whether images with a background must be inverted to match the training images.

        If these were inverted, all images are, unless they are light on dark already. Otherwise,
        images are inverted if their background is light and that of the training images dark, or
        vice versa. background: as the attribute.
        """
        if self.inverted:
            return background != "dark"
        return {background, self.background} == {"dark", "light"}

    def apply(self, image, *, invert: bool | str | None = None, centre_ink: bool | str = False):
        """Convert an image (C, H, W) in [0, 1] to `shape`; return it with a record of the changes.

        invert: whether to swap light and dark. None does so if the training images were inverted;
            "auto" looks at the image, too (see `differs_from`).
        centre_ink: whether to scale and center the ink as in MNIST. "auto" does so if the network
            was trained on centered ink and the image has a different size.
        """
        invert = bool(self.inverted) if invert is None else invert
        for name, value in (("invert", invert), ("centre_ink", centre_ink)):
            if value not in (True, False, "auto"):
                raise ValueError(f'{name} must be True, False or "auto", not {value!r}')
        channels, *size = self.shape
        border = "light" if has_light_border(image) else "dark"
        if invert == "auto":
            invert = self.differs_from(ground(image))
        if centre_ink == "auto":
            centre_ink = self.centred and list(image.shape[1:]) != size
        if centre_ink:
            image = fit(image, image.shape[1:], channels)
            shown = 1 - centre(1 - image, size) if border == "light" else centre(image, size)
        else:
            fill = None if self.fill is None else abs(self.fill - bool(invert))  # then inverted
            shown = fit(image, size, channels, fill=fill)
        shown = 1 - shown if invert else shown
        return shown, {"border": border, "inverted": bool(invert), "centred": bool(centre_ink)}

    def batches(self, images, size: int, **changes) -> Iterator[np.ndarray]:
        """Convert each image with `apply`; yield float32 arrays (b, C, H, W) in [0, 1], b ≤ `size`.

        images: an array (n, H, W), (n, H, W, C) or (n, C, H, W), or a list of images of any sizes,
            each (H, W), (H, W, C) or (C, H, W). C is 1 or 3. Floats must lie in [0, 1]; uint16
            values are divided by 65,535, and other integers by 255. Images that roughly have the
            range `scale` of the training images are scaled as these were.

        Raises `DataError` for any other input.
        """
        if isinstance(images, list | tuple):
            known = [checked(plain(image)[None], self.scale) for image in images]
        else:
            pixels, white = checked(plain(images), self.scale)
            known = [(pixels[k : k + 1], white) for k in range(len(pixels))]
        for k in range(0, len(known), size):
            some = known[k : k + size]
            yield np.stack([self.apply(scaled(*one)[0], **changes)[0] for one in some])

    def batch(self, images, **changes) -> np.ndarray:
        """Convert images as `batches` does, all in one array (n, C, H, W)."""
        found = list(self.batches(images, max(1, len(images)), **changes))
        return found[0] if found else np.zeros((0, *self.shape), np.float32)


def as_images(images) -> np.ndarray:
    """Convert images to a float32 array (n, C, H, W) with values in [0, 1].

    images: an array, or a list of images of one size; see `Preprocessing.batches`. The scale
        depends only on the dtype, so an image is converted in the same way in every batch.

    Raises `DataError` if the array cannot be interpreted as images.
    """
    if not isinstance(images, list | tuple):
        return scaled(*checked(plain(images)))
    found = [scaled(*checked(plain(image)[None])) for image in images]
    if len({image.shape for image in found}) > 1:
        shapes = sorted({image.shape[1:] for image in found})
        raise DataError(f"the images have different sizes, such as {shapes[0]} and {shapes[-1]}")
    return np.concatenate(found) if found else np.zeros((0, 1, 1, 1), np.float32)


def plain(image) -> np.ndarray:
    """Return an image or a batch as an array of numbers; `DataError` if that loses information."""
    if getattr(image, "mode", "L") not in ("1", "L", "RGB", "F", "I;16"):  # of Pillow
        raise DataError(f'the image has mode {image.mode}: convert it with image.convert("RGB")')
    array = plain_array(
        image,
        masked="the images are a masked array: fill it, as in images.filled(0)",
        ragged="the images have different sizes: pass a list of arrays",
    )
    if array.dtype.kind not in "buif":
        raise DataError(
            f"the images are of type {array.dtype}: expected an array of numbers, or a list of"
            " arrays; minicaps.data.images.read_picture reads a file"
        )
    return array


def checked(images, scale=None) -> tuple[np.ndarray, float]:
    """Return an array of images as (n, C, H, W), with the value of white; raise `DataError`.

    scale: the range (black, white) of the training images. If the images roughly have it, black is
        subtracted.
    """
    if images.ndim < 3 or (images.ndim == 3 and images.shape[2] in (3, 4)):
        raise DataError(
            f"the array of shape {images.shape} looks like one image, or like rows of pixels: pass"
            " a batch, as in images[None], a list of images, or images.reshape(-1, height, width)"
        )
    if images.size == 0 and (images.ndim not in (3, 4) or len(images)):
        raise DataError(f"the images of shape {images.shape} have no pixels")
    if images.size == 0:
        return np.zeros((0, 1, 1, 1), np.float32), 1
    images = channels_first(images, "the images")[0]
    white = 65535 if images.dtype == np.uint16 else WHITE.get(images.dtype.kind, 1)
    low, high = float(images.min()), float(images.max())
    if np.isnan(low) or np.isinf([low, high]).any():
        raise DataError("the images have pixels that are infinite or NaN: expected numbers")
    if in_range(low, high, scale):
        return images - scale[0] if scale[0] else images, scale[1] - scale[0]
    if low < -ROUNDING or high > white * (1 + ROUNDING):
        raise DataError(
            f"the images have {images.dtype} pixels from {low:g} to {high:g}: expected floats from"
            " 0 to 1, or integers up to 255 (uint16: 65535); divide them by their value of white,"
            " such as 255"
        )
    if (white == 255 and high == 1) or (white == 65535 and 0 < high <= 4095):
        raise DataError(
            f"the images have {images.dtype} pixels up to {high:g}, but white is {white}: divide"
            " them by their own value of white and pass floats"
        )
    return images, white


def scaled(images, white) -> np.ndarray:
    """Divide images by `white`; return float32 in [0, 1]."""
    return np.clip(np.divide(images, white, dtype=np.float32), 0, 1)
