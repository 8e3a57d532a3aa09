"""Layers: parameters with a forward function."""

from minicaps.nn.capsules import ConvCaps, Decoder, DenseCaps, PrimaryCaps, Routing, SharedCaps
from minicaps.nn.layers import BatchNorm2d, Conv2d, Dropout, Linear
from minicaps.nn.matrix import MatrixClassCaps, MatrixConvCaps, MatrixPrimaryCaps
from minicaps.nn.module import Module

__all__ = [
    "BatchNorm2d",
    "Conv2d",
    "ConvCaps",
    "Decoder",
    "DenseCaps",
    "Dropout",
    "Linear",
    "MatrixClassCaps",
    "MatrixConvCaps",
    "MatrixPrimaryCaps",
    "Module",
    "PrimaryCaps",
    "Routing",
    "SharedCaps",
]
