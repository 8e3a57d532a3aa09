"""Differentiable functions of tensors; every op defines its own gradient."""

from minicaps.ops import activation, capsule, conv, loss, math, pool, product, reduce, shape
from minicaps.ops import methods as _methods  # noqa: F401 - attaches the operators of Tensor
from minicaps.ops.activation import *
from minicaps.ops.capsule import *
from minicaps.ops.conv import *
from minicaps.ops.loss import *
from minicaps.ops.math import *
from minicaps.ops.pool import *
from minicaps.ops.product import *
from minicaps.ops.reduce import *
from minicaps.ops.shape import *

__all__ = [
    *activation.__all__, *capsule.__all__, *conv.__all__, *loss.__all__, *math.__all__,
    *pool.__all__, *product.__all__, *reduce.__all__, *shape.__all__,
]  # fmt: skip
