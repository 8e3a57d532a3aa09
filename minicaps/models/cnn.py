"""Convolutional networks: one with capsules, its counterpart with pooling, and a baseline."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from minicaps import ops
from minicaps.models.base import Network
from minicaps.models.sizes import ROUTING_OPTIONS, check_images, children_grid, grid
from minicaps.nn import BatchNorm2d, Conv2d, Dropout, Linear, Module, SharedCaps
from minicaps.nn.capsules import group_channels
from minicaps.routing import Routed
from minicaps.tensor import Tensor

POOLINGS = ("mean", "sum", "max")


class Convolution(Module):
    """Convolution with `channels` (C, O), followed by optional batch normalization and a ReLU."""

    def __init__(self, channels, kernel, rng, *, padding=0, batch_norm=False):
        alone = {"bias": not batch_norm, "relu": not batch_norm}
        self.conv = Conv2d(*channels, kernel, rng, padding=padding, **alone)
        self.norm = BatchNorm2d(channels[1]) if batch_norm else None

    def forward(self, x):
        x = self.conv(x)
        return ops.relu(self.norm(x)) if self.norm else x


class Features(Module):
    """Convolutional layers that `CapsuleCNN` and `PoolingCNN` have in common.

    Images (B, C, H, W) are mapped to feature maps (B, 128, P, Q). Two convolutions with 64 channels
    are followed by average pooling and two convolutions with 128 channels. All kernels are 3×3,
    without padding.
    """

    WIDTH = 128
    LAYERS = ((3, 1), (3, 1), (2, 2), (3, 1), (3, 1))  # (kernel, stride)

    def __init__(self, channels, rng, batch_norm):
        widths = (channels, 64, 64, self.WIDTH, self.WIDTH)
        self.convolutions = [
            Convolution(widths[k : k + 2], 3, rng, batch_norm=batch_norm) for k in range(4)
        ]

    def forward(self, x):
        grid(x.shape[-2:], self.LAYERS)  # rejects images that are too small
        for k, convolution in enumerate(self.convolutions):
            x = convolution(ops.avg_pool2d(x) if k == 2 else x)
        return x


class CapsuleCNN(Network):
    """Convolutional network with one capsule per class and routing over all positions.

    The channels at each position form a child capsule. A parent uses the same matrix for all
    children, so a trained network accepts images of any size of at least 14×14 pixels. The network
    was proposed by Jianlin Su in 2018 (kexue.fm/archives/4819). CapsuleCNN maps images (B, C, H, W)
    to a `Routed` tuple. The `activations` (B, classes) are the lengths of the class capsules and
    serve as predictions.

    Parameters
    ----------
    input_shape : shape of an image, (C, H, W)
    classes : number of classes
    squash : kind of squash at the end of the routing
    batch_norm : whether to normalize each convolution's output over the batch
    seed : seed of the initial weights
    **routing : name and options of the routing
        See `minicaps.nn.Routing`; the update is "spherical" by default.
    """

    score, routing_options = "length", ROUTING_OPTIONS

    @classmethod
    def layers(cls, preset: str | None = None) -> Sequence[tuple[int, int]]:
        return Features.LAYERS

    def __init__(
        self,
        input_shape: tuple[int, ...],
        classes: int,
        *,
        squash: str = "half",
        batch_norm: bool = False,
        seed: int = 0,
        **routing: Any,
    ):
        rng = np.random.default_rng(seed)
        self.children_grid = children_grid(input_shape[1:], Features.LAYERS, types=1)
        p, q = self.children_grid[:2]
        self.features = Features(input_shape[0], rng, batch_norm)
        asked = ROUTING_OPTIONS | routing
        agree = asked["routing"] in ("agreement", "leaky") and asked["iterations"] != 1
        if agree and asked["update"] is None:
            asked["update"] = "spherical"
        self.classes = SharedCaps(
            Features.WIDTH,
            (classes, 16),
            rng,
            children=p * q,
            length=math.sqrt(Features.WIDTH),  # length of a child whose values have magnitude one
            squash=squash,
            **asked,
        )

    def forward(self, images: Tensor) -> Routed:
        return self.classes(group_channels(self.features(images), Features.WIDTH))


class PoolingCNN(Network):
    """Counterpart of `CapsuleCNN` with pooling instead of capsules.

    The convolutions of `CapsuleCNN` are followed by pooling over all positions and two linear
    layers. The `activations` (B, classes) are the outputs of sigmoids and represent independent
    probabilities. The network has no poses or couplings.

    Parameters
    ----------
    input_shape : shape of an image, (C, H, W)
    classes : number of classes
    pooling : "mean", "sum" or "max" over all positions
        The sum is divided by the number of positions in an image of `input_shape`. For such images
        it therefore equals the mean; it is larger for larger images, as the sum of votes in
        `CapsuleCNN` is.
    batch_norm : whether to normalize each convolution's output over the batch
    seed : seed of the initial weights
    """

    @classmethod
    def layers(cls, preset: str | None = None) -> Sequence[tuple[int, int]]:
        return Features.LAYERS

    def __init__(
        self,
        input_shape: tuple[int, ...],
        classes: int,
        *,
        pooling: str = "mean",
        batch_norm: bool = False,
        seed: int = 0,
    ):
        if pooling not in POOLINGS:
            raise ValueError(f"unknown pooling {pooling!r}: choose {', '.join(POOLINGS)}")
        rng, self.pooling = np.random.default_rng(seed), pooling
        self.positions = math.prod(grid(input_shape[1:], Features.LAYERS))
        self.features = Features(input_shape[0], rng, batch_norm)
        self.hidden = Linear(Features.WIDTH, 128, rng)
        self.classes = Linear(128, classes, rng, init="glorot")

    def forward(self, images: Tensor) -> Routed:
        x = self.pooled(self.features(images))
        x = ops.relu(self.hidden(x))
        return without_capsules(ops.sigmoid(self.classes(x)))

    def pooled(self, maps: Tensor) -> Tensor:
        """Pool feature maps (B, C, P, Q) to (B, C)."""
        if self.pooling == "max":
            return maps.max(axis=(2, 3))
        mean = ops.global_avg_pool(maps)
        if self.pooling == "sum":
            return mean * (math.prod(maps.shape[2:]) / self.positions)
        return mean


class BaselineCNN(Network):
    """Baseline of Sabour et al. (2017): three 5×5 convolutions, three linear layers, and dropout.

    The `activations` (B, classes) are logits, so the default loss is the cross-entropy; the margin
    loss takes their sigmoids in place of lengths.

    Parameters
    ----------
    input_shape : shape of an image, (C, H, W)
    classes : number of classes
    dropout : fraction of the last hidden layer that is dropped during training
    batch_norm : whether to normalize each convolution's output over the batch
    seed : seed of the initial weights
    """

    logits = True

    def __init__(
        self,
        input_shape: tuple[int, ...],
        classes: int,
        *,
        dropout: float = 0.5,
        batch_norm: bool = False,
        seed: int = 0,
    ):
        rng, self.input_shape = np.random.default_rng(seed), tuple(input_shape)
        channels, *image = input_shape
        widths = (channels, 256, 256, 128)
        self.convolutions = [
            Convolution(widths[k : k + 2], 5, rng, padding=2, batch_norm=batch_norm)
            for k in range(3)
        ]
        self.hidden = [Linear(math.prod(image) * 128, 328, rng), Linear(328, 192, rng)]
        self.dropout = Dropout(dropout)
        self.classes = Linear(192, classes, rng, init="glorot")

    def forward(self, images: Tensor) -> Routed:
        check_images(images, self.input_shape)
        x = images
        for convolution in self.convolutions:
            x = convolution(x)
        x = flattened(x)
        for layer in self.hidden:
            x = ops.relu(layer(x))
        return without_capsules(self.classes(self.dropout(x)))


def flattened(maps):
    """Flatten feature maps (B, C, P, Q) to vectors (B, P·Q·C).

    A convolution stores its output with the channels last, so this order avoids a copy.
    """
    return maps.transpose(0, 2, 3, 1).reshape(len(maps), math.prod(maps.shape[1:]))


def without_capsules(activations: Tensor) -> Routed:
    """Return a `Routed` tuple that contains only activations, for networks without capsules."""
    return Routed(None, activations, None)  # type: ignore[arg-type]
