"""Network without capsules that serves as a counterpart of the CapsNet in comparisons."""

import math

import numpy as np

from minicaps import ops
from minicaps.models.base import Network
from minicaps.models.capsnet import CAPSNET_PRESETS, CapsNet
from minicaps.models.cnn import flattened, without_capsules
from minicaps.models.sizes import check_images, grid, sizes_of
from minicaps.nn import Conv2d, Decoder, Linear
from minicaps.routing import Routed
from minicaps.tensor import Tensor


class DenseCNN(Network):
    """Network with the convolutions of `CapsNet`, but linear layers instead of votes and routing.

    The hidden layer has one unit for each component of the class capsules, and as many weights as
    the matrices that compute the votes. A second linear layer maps the hidden units to the classes.
    At every image size, the network therefore has almost as many parameters as a CapsNet
    without decoder: with J classes, 16 J + 17 more for each class. Images (B, C, H, W) of
    `input_shape` are mapped to `activations` (B, classes). The activations are logits, so the
    default loss is the cross-entropy; the margin loss takes their sigmoids in place of lengths.
    Like the CapsNet, the network has no dropout.

    Parameters
    ----------
    input_shape : shape of an image, (C, H, W)
    classes : number of classes
    preset : the sizes of the layers, a key of `CAPSNET_PRESETS`
    decoder : whether to build the decoder of the CapsNet
        The hidden units then serve as poses (B, J, D): the decoder draws an image from the D units
        that belong to its class.
    seed : seed of the initial weights
    """

    logits, presets = True, CAPSNET_PRESETS

    @classmethod
    def layers(cls, preset: str | None = "paper") -> list[tuple[int, int]]:
        return CapsNet.layers(preset)

    def __init__(
        self, input_shape: tuple[int, ...], classes: int, *, preset: str = "paper",
        decoder: bool = False, seed: int = 0,
    ):  # fmt: skip
        sizes, self.input_shape = sizes_of(self.presets, preset), tuple(input_shape)
        rng = np.random.default_rng(seed)
        channels, *image = input_shape
        types, size, kernel, stride = sizes["primary"]
        layers = (*sizes["convolutions"], (types * size, kernel, stride))
        image = grid(image, self.layers(preset))
        self.convolutions = []
        for width, side, step in layers:
            layer = Conv2d(channels, width, side, rng, stride=step, relu=True)
            self.convolutions.append(layer)
            channels = width
        self.pose_shape = (classes, sizes["capsule_size"])
        hidden = math.prod(self.pose_shape)
        self.hidden = Linear(math.prod(image) * channels, hidden, rng)
        self.classes = Linear(hidden, classes, rng, init="glorot")
        if decoder:
            self.decoder = Decoder(self.pose_shape, input_shape, rng, hidden=sizes["hidden"])

    def forward(self, images: Tensor) -> Routed:
        check_images(images, self.input_shape)
        x = images
        for convolution in self.convolutions:
            x = convolution(x)
        x = ops.relu(self.hidden(flattened(x)))
        found = without_capsules(self.classes(x))
        if self.decoder is None:
            return found
        return found._replace(poses=x.reshape(len(x), *self.pose_shape))
