"""Layers: parameters with a forward function."""

from minicaps.nn.capsules import Decoder, DenseCaps, PrimaryCaps
from minicaps.nn.layers import Conv2d, Linear
from minicaps.nn.module import Module

__all__ = ["Conv2d", "Decoder", "DenseCaps", "Linear", "Module", "PrimaryCaps"]
