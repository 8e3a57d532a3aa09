"""Capsule layers: from feature maps to capsules, from capsules to capsules, and back to pixels."""

import functools
import itertools
import math

import numpy as np

from minicaps import ops
from minicaps.nn import init
from minicaps.nn.layers import Conv2d, Linear, parameter
from minicaps.nn.module import Module
from minicaps.routing import agreement, route_in_blocks
from minicaps.tensor import Tensor


class PrimaryCaps(Module):
    """The first capsules: a convolution whose channels are cut into `types` groups of `size`.

    (B, C, H, W) -> (B, P·Q·types, size), squashed. A capsule is `size` channels *at one position*
    (Sabour et al. 2017, section 4), never neighbouring pixels of one channel. Capsules are
    ordered by position, then by type.
    """

    def __init__(self, channels, types, size, kernel, rng, *, stride=2, squash="paper"):
        ops.capsule.check_squash(squash)
        self.conv = Conv2d((channels, types * size), kernel, rng, stride=stride, before="none")
        self.size, self.squash = size, squash

    def forward(self, x):
        maps = self.conv(x)  # (B, types·size, P, Q)
        capsules = group_channels(maps, self.size)
        return ops.squash(capsules, kind=self.squash)


def group_channels(maps, size):
    """Cut feature maps (B, C, P, Q) into capsules (B, P·Q·C/size, size) of adjacent channels."""
    b, c, p, q = maps.shape
    return maps.transpose(0, 2, 3, 1).reshape(b, p * q * (c // size), size)


class DenseCaps(Module):
    """Every input capsule votes for every output capsule: (B, I, N) -> Routed of (B, J, D).

    `shape` is (I, J, N, D). The weights W have that shape, in memory (I, N, J, D), so that the
    votes of one capsule are one matrix product. No bias. Routing options as in
    `minicaps.routing.agreement`.
    """

    def __init__(self, shape, rng, **routing):
        weight = init.capsule_normal(rng, shape).transpose(0, 2, 1, 3)
        self.weight = parameter(weight.copy().transpose(0, 2, 1, 3))
        self.route = functools.partial(agreement, **routing)
        self.route(Tensor(np.zeros((0, 1, 1, 1))))  # refuses wrong options now, not in training

    def forward(self, u):
        return route_in_blocks(u, self.weight, self.route)


class Decoder(Module):
    """Draw the picture from the capsules: (B, J, D) -> (B, C, H, W) in (0, 1).

    Linear layers with ReLU between and a sigmoid at the end (Sabour et al. 2017, figure 2).
    """

    def __init__(self, capsules, size, hidden, image_shape, rng):
        widths = [capsules * size, *hidden, math.prod(image_shape)]
        last = len(widths) - 2
        self.layers = [
            Linear(n, m, rng, before="none" if k == last else "relu")
            for k, (n, m) in enumerate(itertools.pairwise(widths))
        ]
        self.image_shape = tuple(image_shape)

    def forward(self, poses):
        x = poses.reshape(poses.shape[0], math.prod(poses.shape[1:]))  # −1 fails on no samples
        for layer in self.layers[:-1]:
            x = ops.relu(layer(x))
        return ops.sigmoid(self.layers[-1](x)).reshape(-1, *self.image_shape)
