"""The layers of ordinary networks: linear, convolution, dropout, batch norm."""

import numpy as np

from minicaps import ops
from minicaps.backend import array_module
from minicaps.nn.init import Rng, initial
from minicaps.nn.module import Module
from minicaps.tensor import Tensor

__all__ = ["BatchNorm2d", "Conv2d", "Dropout", "Linear"]


def parameter(array):
    """Make a learned tensor."""
    return Tensor(array, requires_grad=True)


class Linear(Module):
    """y = x W + b: (…, n) -> (…, m). init: "he", for a ReLU after it, or "glorot"."""

    def __init__(self, inputs: int, outputs: int, rng: Rng = None, *, init: str = "he"):
        self.weight = parameter(initial(init, rng, (inputs, outputs), inputs, outputs))
        self.bias = parameter(np.zeros(outputs, np.float32))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


class Conv2d(Module):
    """Convolution of NCHW images of C channels to O, with a square `kernel`, stride and padding.

    The weights have shape (O, C, K, K), in memory channels last, as `ops.conv2d` reads them.
    init: as in `Linear`. bias: False leaves it out, as before batch norm, which would subtract it
    again.
    """

    def __init__(
        self, inputs: int, outputs: int, kernel: int, rng: Rng = None, *, stride: int = 1,
        padding: int = 0, init: str = "he", bias: bool = True,
    ):  # fmt: skip
        c, o, area = inputs, outputs, kernel * kernel
        weight = initial(init, rng, (o, kernel, kernel, c), c * area, o * area)
        self.weight = parameter(weight.transpose(0, 3, 1, 2))
        self.bias = parameter(np.zeros(o, np.float32)) if bias else None
        self.stride, self.padding = stride, padding

    def forward(self, x: Tensor) -> Tensor:
        return ops.conv2d(x, self.weight, self.bias, stride=self.stride, padding=self.padding)


class Dropout(Module):
    """In training set each value to 0 with probability `rate`, and divide the others by 1 − rate.

    So the expected value stays, and evaluation changes nothing (Srivastava et al. 2014). The masks
    are drawn by NumPy on any device; `Module.reseed` makes them repeat.
    """

    def __init__(self, rate: float):
        if not 0 <= rate < 1:
            raise ValueError(f"dropout takes the share to drop, from 0 to below 1, not {rate}")
        self.rate, self.rng = float(rate), np.random.default_rng(0)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0:
            return x
        kept = self.rng.random(x.shape, np.float32) >= self.rate
        return x * (array_module(x.data).asarray(kept).astype(x.dtype) / (1 - self.rate))


MOMENTUM = 0.1  # of a batch in the running statistics
EPSILON = 1e-5  # added to variances: a channel may be constant


class BatchNorm2d(Module):
    """Give each channel of (B, C, H, W) mean 0 and variance 1, then a learned scale and shift.

    In training mean and variance (divided by the number n of values, not n − 1) are those of the
    channel over the batch and all positions; evaluation takes their running means, in which each
    training batch counts `MOMENTUM` (Ioffe and Szegedy 2015, which corrects n to n − 1 there).
    """

    buffers = ("mean", "variance")

    def __init__(self, channels: int):
        shape = (channels, 1, 1)
        self.scale = parameter(np.ones(shape, np.float32))
        self.shift = parameter(np.zeros(shape, np.float32))
        self.mean, self.variance = np.zeros(shape, np.float32), np.ones(shape, np.float32)

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim != 4 or x.shape[1] != len(self.mean):
            raise ValueError(f"batch norm wants (B, {len(self.mean)}, H, W), not {x.shape}")
        if not self.training or x.size == 0:
            centred, variance = x - self.mean, self.variance
        else:
            mean = x.mean(axis=(0, 2, 3), keepdims=True)  # (1, C, 1, 1)
            centred = x - mean
            variance = (centred * centred).mean(axis=(0, 2, 3), keepdims=True)
            self.mean = self._moved(self.mean, mean)
            self.variance = self._moved(self.variance, variance)
        return centred * (self.scale / ops.sqrt(variance + EPSILON)) + self.shift

    @staticmethod
    def _moved(running, batch):
        """The running statistic after a batch, in its own precision."""
        return (running + MOMENTUM * (batch.data[0] - running)).astype(running.dtype)
