"""Capsule layers: from feature maps to capsules, between capsules, and from capsules to images."""

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from minicaps import ops
from minicaps.nn import init
from minicaps.nn.init import Rng
from minicaps.nn.layers import Conv2d, Linear, parameter
from minicaps.nn.module import Module
from minicaps.routing import Routed, make_votes, route_in_blocks
from minicaps.routing.couplings import Windows
from minicaps.routing.registry import choose
from minicaps.tensor import Tensor

__all__ = ["ConvCaps", "Decoder", "DenseCaps", "PrimaryCaps", "Routing", "SharedCaps"]


class PrimaryCaps(Module):
    """Primary capsules, computed by a convolution whose channels form `types` groups of `size`.

    Maps features (B, C, H, W) to squashed capsules (B, P·Q·types, size). Each capsule consists of
    `size` channels *at one position* rather than neighboring pixels of one channel (Sabour et al.
    2017, section 4). The capsules are ordered by position and then by type.
    """

    def __init__(
        self, channels: int, types: int, size: int, kernel: int, rng: Rng = None, *,
        stride: int = 2, squash: str = "paper",
    ):  # fmt: skip
        ops.capsule.check_squash(squash)
        self.conv = Conv2d(channels, types * size, kernel, rng, stride=stride, init="glorot")
        self.size, self.squash = size, squash

    def forward(self, x: Tensor) -> Tensor:
        maps = self.conv(x)  # (B, types·size, P, Q)
        capsules = group_channels(maps, self.size)
        return ops.squash(capsules, kind=self.squash)


def group_channels(maps, size):
    """Split feature maps (B, C, P, Q) into capsules (B, P·Q·C/size, size) of adjacent channels."""
    b, c, p, q = maps.shape
    return maps.transpose(0, 2, 3, 1).reshape(b, p * q * (c // size), size)


class DenseCaps(Module):
    """Dense capsules: every input capsule votes for every output capsule.

    Maps input capsules (B, I, N) to a Routed with poses (B, J, D). The weights W have the shape
    (I, J, N, D) but the memory layout (I, N, J, D), so that a single matrix product computes all
    votes of a capsule. There is no bias.

    Parameters
    ----------
    inputs, outputs
        Number and size of the input capsules, (I, N), and of the output capsules, (J, D).

    routing, **options
        See `Routing`.
    """

    def __init__(
        self, inputs: tuple[int, int], outputs: tuple[int, int], rng: Rng = None, *,
        routing: str = "agreement", **options: object,
    ):  # fmt: skip
        (i, n), (j, d) = inputs, outputs
        gain = _shares(routing, i, j) / math.sqrt(i)
        self.weight = _by_child(init.capsule_normal(rng, (i, j, n, d), gain))
        self.routing = Routing(routing, (i, j), **options)

    def forward(self, u: Tensor) -> Routed:
        return self.routing(make_votes, u, self.weight, self.weight.size // self.weight.shape[2])


class SharedCaps(Module):
    """Capsules with one transformation matrix per parent, so that the number of children may vary.

    Maps input capsules (B, I, N) to a Routed with poses (B, J, D). The weights have shape
    (J, N, D).

    Parameters
    ----------
    inputs, outputs
        Size N of a child, and number and size of the parents, (J, D).

    children, length
        Approximate number and length of the children in a sample, which determine the scale of the
        initial weights. With "learned" couplings, the number of children must be exact.

    routing, **options
        See `Routing`.
    """

    def __init__(
        self, inputs: int, outputs: tuple[int, int], rng: Rng = None, *, children: int,
        length: float = 1.0, routing: str = "agreement", **options: object,
    ):  # fmt: skip
        parents, size = outputs
        # The sum of the children has length I·length if they agree and √I·length if they are
        # random; the initial scale is between the two.
        gain = _shares(routing, children, parents) / (children**0.75 * length)
        self.weight = parameter(init.capsule_normal(rng, (parents, inputs, size), gain))
        self.routing = Routing(routing, (children, parents), **options)

    def forward(self, u: Tensor) -> Routed:
        def votes(u, weight):
            return ops.einsum("bin,jnd->bijd", u, weight)

        parents, _, size = self.weight.shape
        return self.routing(votes, u, self.weight, u.shape[1] * parents * size)


class ConvCaps(Module):
    """Convolutional capsules: each K×K window has its own parents, and all windows share matrices.

    Maps a grid of capsules (B, H, W, types, N) to a Routed with poses (B, P, Q, J, D), activations
    (B, P, Q, J) and couplings (B, P, Q, K·K·types, J). Each child is divided among all parents in
    all windows that contain it.

    Parameters
    ----------
    inputs, outputs
        Number and size of the capsules at a position: (types, N) of the children, (J, D) of the
        parents.

    kernel, stride
        Side K of the windows, and distance between them.

    routing, **options
        See `Routing`.
    """

    def __init__(
        self, inputs: tuple[int, int], outputs: tuple[int, int], kernel: int, rng: Rng = None, *,
        stride: int = 1, routing: str = "agreement", **options: object,
    ):  # fmt: skip
        (types, n), (parents, d) = inputs, outputs
        children = kernel * kernel * types
        # An inner child divides itself among (kernel/stride)² windows, but one in a corner is in
        # a single window; the initial scale is between the two.
        gain = _shares(routing, children, parents * max(1, kernel / stride)) / math.sqrt(children)
        self.weight = _by_child(init.capsule_normal(rng, (children, parents, n, d), gain))
        self.kernel, self.stride = kernel, stride
        self.routing = Routing(routing, (children, parents), **options)

    def forward(self, u: Tensor) -> Routed:
        b, h, w, types, _ = u.shape
        windows = Windows((h, w), self.kernel, self.stride, types)

        def votes(u, weight):
            return make_votes(windows.gather(u), weight)

        p, q = windows.grid
        count = p * q * self.weight.size // self.weight.shape[2]
        routed = self.routing(votes, u, self.weight, count, windows)
        return routed.map(lambda x: x.reshape(b, p, q, *x.shape[1:]))


def _shares(routing, children, parents):
    """Return 1/c for the initial sum s = c Σ_i û of votes.

    The value 1/c is the number of children if parents are means and the number of parents
    otherwise.
    """
    return children if routing == "distance" else parents


def _by_child(weight):
    """Return W (I, J, N, D) as a parameter with the memory layout (I, N, J, D)."""
    return parameter(weight.transpose(0, 2, 1, 3).copy().transpose(0, 2, 1, 3))


class Routing(Module):
    """Route the votes of a layer using the routing `name` from `minicaps.routing.registry`.

    shape: numbers of children and parents (I, J), used only for "learned" couplings.
    options: options of the routing. None selects the default of an option, and invalid options
    raise ValueError.
    """

    def __init__(self, name: str, shape: tuple[int, int], **options: object):
        self.route = choose(name, **options)
        self.logits = parameter(np.zeros(shape, np.float32)) if name == "learned" else None

    def _logits(self):
        return [] if self.logits is None else [self.logits]

    def forward(
        self, make_votes: Callable, u: Tensor, weight: Tensor, votes_size: int,
        windows: Windows | None = None,
    ) -> Routed:  # fmt: skip
        """Route the votes make_votes(u, weight).

        votes_size: number of values in the votes of one sample. windows: as in `couple`.
        """

        def layer(u, weight, *logits):
            return self.route(make_votes(u, weight), *logits, windows=windows)

        return route_in_blocks(layer, [u], [weight, *self._logits()], votes_size)


class Decoder(Module):
    """Reconstruct images (B, C, H, W) with values in (0, 1) from capsules (B, J, D).

    inputs: (J, D). outputs: (C, H, W). hidden: widths of the hidden layers. The decoder consists of
    linear layers with ReLUs in between and a sigmoid at the end (Sabour et al. 2017, figure 2).
    """

    def __init__(
        self, inputs: tuple[int, int], outputs: tuple[int, ...], rng: Rng = None, *,
        hidden: Sequence[int] = (512, 1024),
    ):  # fmt: skip
        widths, rng = [math.prod(inputs), *hidden], np.random.default_rng(rng)
        self.layers = [Linear(n, m, rng) for n, m in itertools.pairwise(widths)]
        self.layers.append(Linear(widths[-1], math.prod(outputs), rng, init="glorot"))
        self.image_shape = tuple(outputs)

    def forward(self, poses: Tensor) -> Tensor:
        x = poses.reshape(poses.shape[0], math.prod(poses.shape[1:]))  # −1 fails without samples
        for layer in self.layers[:-1]:
            x = ops.relu(layer(x))
        return ops.sigmoid(self.layers[-1](x)).reshape(-1, *self.image_shape)
