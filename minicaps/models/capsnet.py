"""CapsNet, the capsule network of Sabour, Frosst and Hinton (2017)."""

import math
from typing import Any

import numpy as np

from minicaps.models.base import Network
from minicaps.models.sizes import ROUTING_OPTIONS, check_images, children_grid, sizes_of
from minicaps.nn import Conv2d, Decoder, DenseCaps, PrimaryCaps, SharedCaps
from minicaps.routing import Routed
from minicaps.tensor import Tensor

# Convolutions (channels, kernel, stride), primary capsules (types, size, kernel, stride),
# size of a class capsule, and hidden widths of the decoder.
CAPSNET_PRESETS = {
    "paper": {
        "convolutions": ((256, 9, 1),),
        "primary": (32, 8, 9, 2),
        "capsule_size": 16,
        "hidden": (512, 1024),
    },
    "medium": {  # small, twice as wide
        "convolutions": ((64, 5, 1), (128, 5, 2)),
        "primary": (16, 8, 5, 2),
        "capsule_size": 16,
        "hidden": (256, 512),
    },
    "small": {
        "convolutions": ((32, 5, 1), (64, 5, 2)),
        "primary": (8, 8, 5, 2),
        "capsule_size": 16,
        "hidden": (128, 256),
    },
}


class CapsNet(Network):
    """Capsule network with convolutions, primary capsules, one capsule per class, and a decoder.

    The network maps images (B, C, H, W) to a `Routed` tuple. The `activations` (B, classes) are the
    lengths of the class capsules and serve as predictions.

    Parameters
    ----------
    input_shape : shape of an image, (C, H, W)
    classes : number of classes
    preset : the sizes of the layers, a key of `CAPSNET_PRESETS`
    decoder : whether to build the decoder
    squash : kind of squash at the end of the routing
    primary_squash : kind of squash of the primary capsules, or None for the same as `squash`
    shared : whether all positions share their matrices
        All primary capsules at a position then form one child with types × size numbers.
    seed : seed of the initial weights
    **routing : name and options of the routing
        See `minicaps.nn.Routing`. If an option is None, the default of the routing method is used.
    """

    score, routing_options, presets = "length", ROUTING_OPTIONS, CAPSNET_PRESETS

    @classmethod
    def layers(cls, preset: str | None = "paper") -> list[tuple[int, int]]:
        sizes = sizes_of(cls.presets, preset)
        return [layer[-2:] for layer in (*sizes["convolutions"], sizes["primary"])]

    def __init__(
        self,
        input_shape: tuple[int, ...],
        classes: int,
        *,
        preset: str = "paper",
        decoder: bool = True,
        squash: str = "paper",
        primary_squash: str | None = None,
        shared: bool = False,
        seed: int = 0,
        **routing: Any,
    ):
        sizes, self.input_shape = sizes_of(self.presets, preset), tuple(input_shape)
        self.shared = shared
        rng = np.random.default_rng(seed)
        channels, *image = input_shape
        types, size, kernel, stride = sizes["primary"]
        self.children_grid = children_grid(image, self.layers(preset), 1 if shared else types)
        p, q = self.children_grid[:2]
        self.convolutions = []
        for width, side, step in sizes["convolutions"]:
            layer = Conv2d(channels, width, side, rng, stride=step, relu=True)
            self.convolutions.append(layer)
            channels = width
        self.primary = PrimaryCaps(
            channels, types, size, kernel, rng, stride=stride, squash=primary_squash or squash
        )
        poses, routing = (classes, sizes["capsule_size"]), routing | {"squash": squash}
        self.classes: DenseCaps | SharedCaps
        if shared:  # a primary capsule is at most 1 long
            children = {"children": p * q, "length": types**0.5}
            self.classes = SharedCaps(types * size, poses, rng, **children, **routing)
        else:
            self.classes = DenseCaps((p * q * types, size), poses, rng, **routing)
        if decoder:
            self.decoder = Decoder(poses, input_shape, rng, hidden=sizes["hidden"])

    def forward(self, images: Tensor) -> Routed:
        return self.classes(self.primary_capsules(images))

    def primary_capsules(self, images: Tensor) -> Tensor:
        """Compute the primary capsules (B, I, N), which are the children of the class capsules."""
        check_images(images, self.input_shape)
        x = images
        for convolution in self.convolutions:
            x = convolution(x)
        primary = self.primary(x)
        return self._by_position(primary) if self.shared else primary

    def _by_position(self, primary):
        """Join the capsules (B, P·Q·types, size) at each position to (B, P·Q, types·size)."""
        p, q = self.children_grid[:2]
        return primary.reshape(len(primary), p * q, math.prod(primary.shape[1:]) // (p * q))
