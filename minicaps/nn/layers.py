"""Standard layers: linear, convolution, dropout and batch normalization."""

import numpy as np

from minicaps import ops, ranks
from minicaps.backend import array_module
from minicaps.nn.init import Rng, initial
from minicaps.nn.module import Module
from minicaps.tensor import Tensor

__all__ = ["BatchNorm2d", "Conv2d", "Dropout", "Linear"]


def parameter(array):
    """Return `array` as a tensor to be learned."""
    return Tensor(array, requires_grad=True)


class Linear(Module):
    """Linear layer y = x W + b, which maps (…, n) to (…, m).

    init: "he" if a ReLU follows, or "glorot".
    """

    def __init__(self, inputs: int, outputs: int, rng: Rng = None, *, init: str = "he"):
        self.weight = parameter(initial(init, rng, (inputs, outputs), inputs, outputs))
        self.bias = parameter(np.zeros(outputs, np.float32))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


class Conv2d(Module):
    """2-D convolution of NCHW images from C to O channels with a square kernel.

    The weights have the shape (O, C, K, K) but are stored with the channels last, which is the
    layout that `ops.conv2d` reads. init: as in `Linear`. bias: whether to add a bias. A bias has no
    effect before batch normalization, which subtracts it again. relu: whether to apply a ReLU.
    """

    def __init__(
        self, inputs: int, outputs: int, kernel: int, rng: Rng = None, *, stride: int = 1,
        padding: int = 0, init: str = "he", bias: bool = True, relu: bool = False,
    ):  # fmt: skip
        c, o, area = inputs, outputs, kernel * kernel
        weight = initial(init, rng, (o, kernel, kernel, c), c * area, o * area)
        self.weight = parameter(weight.transpose(0, 3, 1, 2))
        self.bias = parameter(np.zeros(o, np.float32)) if bias else None
        self.stride, self.padding, self.relu = stride, padding, relu

    def forward(self, x: Tensor) -> Tensor:
        options = {"stride": self.stride, "padding": self.padding, "relu": self.relu}
        return ops.conv2d(x, self.weight, self.bias, **options)


class Dropout(Module):
    """In training, set values to 0 with probability `rate` and divide the rest by 1 − rate.

    Since the division preserves the expected values, the layer leaves its input unchanged in
    evaluation mode (Srivastava et al. 2014). On every device, the masks are drawn with NumPy; use
    `Module.reseed` to reproduce them.
    """

    def __init__(self, rate: float):
        if not 0 <= rate < 1:
            raise ValueError(f"the dropout rate must be at least 0 and less than 1, not {rate}")
        self.rate, self.rng = float(rate), np.random.default_rng(0)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0:
            return x
        share = ranks.share()  # of a batch whose mask each rank draws completely
        shape = x.shape if share is None else (share.whole, *x.shape[1:])
        kept = self.rng.random(shape, np.float32) >= self.rate
        kept = kept if share is None else kept[share.rows]
        return x * (array_module(x.data).asarray(kept).astype(x.dtype) / (1 - self.rate))


MOMENTUM = 0.1  # weight of a batch in the running statistics
EPSILON = 1e-5  # added to variances, as a channel may be constant


class BatchNorm2d(Module):
    """Normalize each channel of images (B, C, H, W), then apply a learned scale and shift.

    In training, the mean and the variance (with divisor n) are computed per channel over the batch
    (including the rows that other ranks compute) and all positions. Evaluation uses running
    averages of the mean and the variance, in which each training batch has the weight `MOMENTUM`.
    For these averages, Ioffe and Szegedy (2015) use the divisor n − 1.
    """

    buffers = ("mean", "variance")

    def __init__(self, channels: int):
        shape = (channels, 1, 1)
        self.scale = parameter(np.ones(shape, np.float32))
        self.shift = parameter(np.zeros(shape, np.float32))
        self.mean, self.variance = np.zeros(shape, np.float32), np.ones(shape, np.float32)

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim != 4 or x.shape[1] != len(self.mean):
            raise ValueError(f"batch norm needs (B, {len(self.mean)}, H, W), not {x.shape}")
        if not self.training or x.size == 0:
            centred, variance = x - self.mean, self.variance
        else:
            mean = self._mean(x)  # (1, C, 1, 1)
            centred = x - mean
            variance = self._mean(centred * centred)
            self.mean = self._moved(self.mean, mean)
            self.variance = self._moved(self.variance, variance)
        return centred * (self.scale / ops.sqrt(variance + EPSILON)) + self.shift

    @staticmethod
    def _mean(x):
        """Average each channel over the batch, whose rows several ranks may share."""
        mean, share = x.mean(axis=(0, 2, 3), keepdims=True), ranks.share()
        return mean if share is None else ops.total(mean * share.weight)

    @staticmethod
    def _moved(running, batch):
        """Return the running statistic updated with a batch, without changing its dtype."""
        return (running + MOMENTUM * (batch.data[0] - running)).astype(running.dtype)
