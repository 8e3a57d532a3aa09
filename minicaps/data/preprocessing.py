"""Scale, invert, center and resize images to match the input of a trained network."""

from dataclasses import dataclass

import numpy as np

from minicaps.data.images import centre, fit, has_light_border
from minicaps.data.own.arrays import channels_first
from minicaps.errors import DataError

WHITE = {"b": 1, "u": 255, "i": 255}  # value of white by kind of dtype, except for uint16


@dataclass(frozen=True)
class Preprocessing:
    """Properties of the images that a network was trained on.

    Attributes
    ----------
    shape : (C, H, W)
    background : "dark", "light" or "mixed"; None if unknown
    centred : whether the ink of the images was centered, as in MNIST
    """

    shape: tuple[int, ...]
    background: str | None = None
    centred: bool = False

    def apply(self, image, *, invert: bool | str = False, centre_ink: bool | str = False):
        """Convert an image (C, H, W) in [0, 1] to `shape`; return it with a record of the changes.

        invert: whether to swap light and dark. "auto" inverts the image if its border is light and
            the background of the training images was dark, or the reverse.
        centre_ink: whether to scale and center the ink as in MNIST. "auto" does so if the network
            was trained on centered ink and the image has a different size.
        """
        channels, *size = self.shape
        border = "light" if has_light_border(image) else "dark"
        if invert == "auto":
            invert = self.background not in (border, "mixed", None)
        if centre_ink == "auto":
            centre_ink = self.centred and list(image.shape[1:]) != size
        image = fit(1 - image if invert else image, image.shape[1:], channels)
        if centre_ink:
            dark_ink = (border == "light") != invert
            shown = 1 - centre(1 - image, size) if dark_ink else centre(image, size)
        else:
            shown = fit(image, size)
        return shown, {"border": border, "inverted": bool(invert), "centred": bool(centre_ink)}

    def batch(self, images, **changes) -> np.ndarray:
        """Convert each image with `apply`, and return a float32 array (n, C, H, W) in [0, 1].

        images: an array (n, H, W), (n, H, W, C) or (n, C, H, W), or a list of images of any sizes,
            each (H, W), (H, W, C) or (C, H, W). C is 1 or 3. Floats must lie in [0, 1]; uint16
            values are divided by 65,535, and other integers by 255.

        Raises `DataError` for any other input.
        """
        if isinstance(images, list | tuple):
            found = [as_images(np.asarray(image)[None]) for image in images]
        else:
            found = [as_images(images, self.shape[0])]
        shown = [self.apply(image, **changes)[0] for some in found for image in some]
        return np.stack(shown) if shown else np.zeros((0, *self.shape), np.float32)


def as_images(images, channels=None) -> np.ndarray:
    """Convert an array of images to a float32 array (n, C, H, W) with values in [0, 1].

    The scale depends only on the dtype, so an image is converted in the same way in every batch.

    channels: expected number of channels, used to detect a single image passed as a batch.

    Raises `DataError` if the array cannot be interpreted as images.
    """
    images = np.asarray(images)
    if images.ndim == 2 or (images.ndim == 3 and channels == 3 and 3 in images.shape[::2]):
        raise DataError(
            f"the array of shape {images.shape} looks like one image: pass a batch, as in"
            " images[None], or a list of images"
        )
    if images.dtype.kind not in "buif":
        raise DataError(f"the images are of type {images.dtype}: expected numbers")
    images = channels_first(images, "the images")[0] if images.size else _none(images)
    white = 65535 if images.dtype == np.uint16 else WHITE.get(images.dtype.kind, 1)
    low, high = float(images.min(initial=0)), float(images.max(initial=0))
    if not (low >= -1e-6 and high <= white * (1 + 1e-6)):  # also for NaN
        raise DataError(
            f"the images have {images.dtype} pixels from {low:g} to {high:g}: expected floats from"
            " 0 to 1, or integers up to 255 (uint16: 65535); subtract the value of black and divide"
            " by that of white"
        )
    if white == 255 and high == 1:
        raise DataError(
            f"the images have {images.dtype} pixels that are all 0 or 1: convert them to float if 1"
            " is white, or multiply them by 255"
        )
    return np.clip(np.divide(images, white, dtype=np.float32), 0, 1)


def _none(images):
    """Reshape an empty batch to (0, C, H, W)."""
    return images.reshape(0, 1, 1, 1)
