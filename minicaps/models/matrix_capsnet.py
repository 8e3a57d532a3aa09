"""Matrix capsules with EM routing."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from minicaps import ops
from minicaps.models.base import Network
from minicaps.models.sizes import children_grid, grid, sizes_of
from minicaps.nn import BatchNorm2d, Conv2d
from minicaps.nn.matrix import MatrixClassCaps, MatrixConvCaps, MatrixPrimaryCaps
from minicaps.routing import Routed
from minicaps.tensor import Tensor

# Channels of the convolution; types of the primary and the two layers of convolutional capsules.
MATRIX_PRESETS = {"paper": (32, 32, 32, 32), "small": (64, 8, 16, 16)}
# (kernel, stride); a 5×5 convolution with padding 2 reduces the grid like a 1×1 convolution, but
# sees a margin of 2 pixels more.
LAYERS = ((1, 2), (3, 2), (3, 1))


class MatrixCapsNet(Network):
    """Capsule network with 4×4 poses and EM routing (Hinton, Sabour and Frosst 2018).

    A convolution is followed by primary capsules, two layers of convolutional capsules, and class
    capsules. The network maps images (B, C, H, W) to a `Routed` tuple of poses (B, classes, 16),
    activations (B, classes) and couplings. Images must have at least 13×13 pixels. After training,
    the network can be applied to images of other sizes.

    Parameters
    ----------
    input_shape : shape of an image, (C, H, W)
    classes : number of classes
    preset : the sizes of the layers, a key of `MATRIX_PRESETS`
    iterations, gradient, inverse_temperature, step : see `minicaps.routing.em`
    batch_norm : whether batch normalization follows the convolution
    seed : seed of the initial weights
    """

    score, margin, presets = "activation", 2, MATRIX_PRESETS

    @classmethod
    def layers(cls, preset: str | None = None) -> Sequence[tuple[int, int]]:
        return LAYERS

    def __init__(
        self,
        input_shape: tuple[int, ...],
        classes: int,
        *,
        preset: str = "paper",
        iterations: int = 3,
        gradient: str = "unrolled",
        inverse_temperature: float | None = None,
        step: str = "complete",
        batch_norm: bool = False,
        seed: int = 0,
    ):
        a, b, c, d = sizes_of(self.presets, preset)
        self.children_grid = children_grid(input_shape[1:], LAYERS, types=d)
        rng = np.random.default_rng(seed)
        options: dict[str, Any] = {
            "iterations": iterations,
            "gradient": gradient,
            "inverse_temperature": inverse_temperature,
            "step": step,
            "floor": 0.01,  # a lower floor sharpens the first E steps and slows learning
        }
        self.convolution = Conv2d(
            input_shape[0], a, 5, rng, stride=2, padding=2, relu=not batch_norm
        )
        self.norm = BatchNorm2d(a) if batch_norm else None
        self.primary = MatrixPrimaryCaps(a, b, rng)
        self.capsules = [
            MatrixConvCaps(b, c, 3, rng, stride=2, **options),
            MatrixConvCaps(c, d, 3, rng, **options),
        ]
        self.classes = MatrixClassCaps(d, classes, rng, **options)

    def forward(self, images: Tensor) -> Routed:
        grid(images.shape[2:], LAYERS)  # rejects images that are too small
        x = self.convolution(images)
        grid_of_capsules = self.primary(ops.relu(self.norm(x)) if self.norm else x)
        for layer in self.capsules:
            grid_of_capsules = layer(*grid_of_capsules)[:2]
        return self.classes(*grid_of_capsules)
