"""Linear and convolutional layers."""

import numpy as np

from minicaps import ops
from minicaps.nn import init
from minicaps.nn.module import Module
from minicaps.tensor import Tensor


def parameter(array):
    """Make a learned tensor."""
    return Tensor(array, requires_grad=True)


class Linear(Module):
    """y = x W + b: (…, n) -> (…, m). `before` says what follows: "relu" (He) or "none" (Glorot)."""

    def __init__(self, inputs, outputs, rng, *, before="relu"):
        self.weight = parameter(_initial(rng, (inputs, outputs), inputs, outputs, before))
        self.bias = parameter(np.zeros(outputs, np.float32))

    def forward(self, x):
        return x @ self.weight + self.bias


class Conv2d(Module):
    """Convolution of NCHW images with `channels` (C, O), a square `kernel`, stride and padding.

    The weights have shape (O, C, K, K), in memory channels last, as `ops.conv2d` reads them.
    """

    def __init__(self, channels, kernel, rng, *, stride=1, padding=0, before="relu"):
        c, o = channels
        area = kernel * kernel
        weight = _initial(rng, (o, kernel, kernel, c), c * area, o * area, before)
        self.weight = parameter(weight.transpose(0, 3, 1, 2))
        self.bias = parameter(np.zeros(o, np.float32))
        self.stride, self.padding = stride, padding

    def forward(self, x):
        return ops.conv2d(x, self.weight, self.bias, stride=self.stride, padding=self.padding)


def _initial(rng, shape, fan_in, fan_out, before):
    if before == "relu":
        return init.he_normal(rng, shape, fan_in)
    if before != "none":
        raise ValueError(f"unknown {before!r} after a layer: choose relu or none")
    return init.glorot_uniform(rng, shape, fan_in, fan_out)
