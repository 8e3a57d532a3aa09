"""What the CapsNet is without its capsules: the network to compare it with."""

import math

import numpy as np

from minicaps import ops
from minicaps.models.base import Network
from minicaps.models.capsnet import CAPSNET_PRESETS
from minicaps.models.cnn import flattened, without_capsules
from minicaps.models.sizes import check_images, grid, sizes_of
from minicaps.nn import Conv2d, Linear
from minicaps.routing import Routed
from minicaps.tensor import Tensor


class DenseCNN(Network):
    """The convolutions of `CapsNet`, then a linear layer in the place of votes and routing.

    The hidden layer has as many values as all class capsules together, and its matrix as many
    weights as the votes have; a second linear layer makes classes of them. So it has as many
    parameters as a CapsNet without decoder, but for 170 in each class, at every size of images.
    Images (B, C, H, W) of `input_shape` give `activations` (B, classes): logits, to be trained
    with the cross-entropy. Like a CapsNet, it has no dropout.
    """

    logits = True

    def __init__(
        self, input_shape: tuple[int, ...], classes: int, *, preset: str = "paper", seed: int = 0
    ):
        sizes, self.input_shape = sizes_of(CAPSNET_PRESETS, preset), tuple(input_shape)
        rng = np.random.default_rng(seed)
        channels, *image = input_shape
        types, size, kernel, stride = sizes["primary"]
        layers = (*sizes["convolutions"], (types * size, kernel, stride))
        image = grid(image, [layer[1:] for layer in layers])
        self.convolutions = []
        for width, side, step in layers:
            self.convolutions.append(Conv2d(channels, width, side, rng, stride=step))
            channels = width
        hidden = classes * sizes["capsule_size"]
        self.hidden = Linear(math.prod(image) * channels, hidden, rng)
        self.classes = Linear(hidden, classes, rng, init="glorot")

    def forward(self, images: Tensor) -> Routed:
        check_images(images, self.input_shape)
        x = images
        for convolution in self.convolutions:
            x = ops.relu(convolution(x))
        x = ops.relu(self.hidden(flattened(x)))
        return without_capsules(self.classes(x))
