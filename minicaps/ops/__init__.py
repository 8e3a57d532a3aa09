"""Differentiable functions on tensors: every one returns a value and knows its gradient."""

from minicaps.ops import methods as _methods  # noqa: F401 - gives Tensor its operators
from minicaps.ops.activation import (
    leaky_relu,
    log_sigmoid,
    log_softmax,
    relu,
    sigmoid,
    softmax,
    softplus,
    tanh,
)
from minicaps.ops.capsule import direction, length, mask, squash
from minicaps.ops.conv import conv2d, conv2d_plain
from minicaps.ops.loss import (
    binary_cross_entropy,
    cross_entropy,
    margin_loss,
    mse,
    reconstruction_loss,
)
from minicaps.ops.math import (
    abs,
    add,
    clip,
    divide,
    exp,
    log,
    maximum,
    multiply,
    negative,
    power,
    sqrt,
    subtract,
    where,
)
from minicaps.ops.pool import avg_pool2d, global_avg_pool, max_pool2d
from minicaps.ops.product import einsum, matmul
from minicaps.ops.reduce import logsumexp, max, mean, sum
from minicaps.ops.shape import concatenate, expand, getitem, pad, reshape, stack, transpose

__all__ = [
    "abs",
    "add",
    "avg_pool2d",
    "binary_cross_entropy",
    "clip",
    "concatenate",
    "conv2d",
    "conv2d_plain",
    "cross_entropy",
    "direction",
    "divide",
    "einsum",
    "exp",
    "expand",
    "getitem",
    "global_avg_pool",
    "leaky_relu",
    "length",
    "log",
    "log_sigmoid",
    "log_softmax",
    "logsumexp",
    "margin_loss",
    "mask",
    "matmul",
    "max",
    "max_pool2d",
    "maximum",
    "mean",
    "mse",
    "multiply",
    "negative",
    "pad",
    "power",
    "reconstruction_loss",
    "relu",
    "reshape",
    "sigmoid",
    "softmax",
    "softplus",
    "sqrt",
    "squash",
    "stack",
    "subtract",
    "sum",
    "tanh",
    "transpose",
    "where",
]
