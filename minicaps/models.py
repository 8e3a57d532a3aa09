"""The networks, by name and preset."""

import numpy as np

from minicaps import ops
from minicaps.nn import Conv2d, Decoder, DenseCaps, Module, PrimaryCaps

# Convolutions (channels, kernel, stride), primary capsules (types, size, kernel, stride),
# size of a class capsule, hidden widths of the decoder.
CAPSNET_PRESETS = {
    "paper": {
        "convolutions": ((256, 9, 1),),
        "primary": (32, 8, 9, 2),
        "capsule_size": 16,
        "hidden": (512, 1024),
    },
    "small": {
        "convolutions": ((32, 5, 1), (64, 5, 2)),
        "primary": (8, 8, 5, 2),
        "capsule_size": 16,
        "hidden": (128, 256),
    },
}


class CapsNet(Module):
    """Convolutions, primary capsules, one capsule for each class, and a decoder.

    Sabour, Frosst and Hinton 2017. Images (B, C, H, W) of `input_shape` (C, H, W) give Routed:
    the lengths of the class capsules (`activations`, (B, classes)) are the answer.
    decoder: False leaves the decoder out. squash: its kind at the end of the routing, and of the
    primary capsules too unless `primary_squash` names another. routing: further options of
    `minicaps.routing.agreement`.
    """

    def __init__(
        self,
        input_shape,
        classes,
        *,
        preset="paper",
        decoder=True,
        squash="paper",
        primary_squash=None,
        seed=0,
        **routing,
    ):
        sizes, self.input_shape = _preset(CAPSNET_PRESETS, preset), tuple(input_shape)
        rng = np.random.default_rng(seed)
        channels, *image = input_shape
        types, size, kernel, stride = sizes["primary"]
        grid = _grid(image, [c[1:] for c in sizes["convolutions"]] + [(kernel, stride)])
        self.convolutions = []
        for width, side, step in sizes["convolutions"]:
            self.convolutions.append(Conv2d((channels, width), side, rng, stride=step))
            channels = width
        self.primary = PrimaryCaps(
            channels, types, size, kernel, rng, stride=stride, squash=primary_squash or squash
        )
        shape = (grid[0] * grid[1] * types, classes, size, sizes["capsule_size"])
        self.classes = DenseCaps(shape, rng, squash=squash, **routing)
        self.decoder = None
        if decoder:
            self.decoder = Decoder(
                classes, sizes["capsule_size"], sizes["hidden"], input_shape, rng
            )

    def forward(self, images):
        if images.shape[1:] != self.input_shape:
            raise ValueError(
                f"this network is for images (B, C, H, W) with (C, H, W) = {self.input_shape},"
                f" not {images.shape}"
            )
        x = images
        for convolution in self.convolutions:
            x = ops.relu(convolution(x))
        return self.classes(self.primary(x))

    def reconstruct(self, poses, keep):
        """Draw pictures from class capsules (B, J, D), all masked to zero but `keep` (B,).

        Raises ValueError if the network was built with decoder=False.
        """
        if self.decoder is None:
            raise ValueError("this network has no decoder: build it with decoder=True")
        return self.decoder(ops.mask(poses, keep))


def _preset(presets, name):
    if name not in presets:
        raise ValueError(f"unknown preset {name!r}: choose {', '.join(presets)}")
    return presets[name]


def _grid(image, layers):
    """Size of the map after convolutions (kernel, stride); refuse images that are too small."""
    least = 1
    for kernel, stride in reversed(layers):
        least = (least - 1) * stride + kernel
    if min(image) < least:
        raise ValueError(
            f"images of {image[0]}×{image[1]} pixels are too small for this network:"
            f" it needs at least {least}×{least}"
        )
    for kernel, stride in layers:
        image = [(n - kernel) // stride + 1 for n in image]
    return image


MODELS = {"capsnet": CapsNet}


def build(name, input_shape, classes, **options):
    """Make the network `name` for images of `input_shape` (C, H, W) and a number of classes.

    Names: capsnet. Options are those of the network's class; `config` of the result has all that
    is needed to build it again. Raises ValueError for what does not exist or does not fit.
    """
    if name not in MODELS:
        raise ValueError(f"unknown model {name!r}: choose {', '.join(MODELS)}")
    if len(input_shape) != 3 or min(input_shape) < 1:
        raise ValueError(f"input_shape must be (channels, height, width), not {input_shape}")
    if classes < 2:
        raise ValueError(f"a classifier needs at least 2 classes, not {classes}")
    model = MODELS[name](tuple(input_shape), classes, **options)
    model.config = {
        "name": name,
        "input_shape": list(input_shape),
        "classes": classes,
        "options": options,
    }
    return model
