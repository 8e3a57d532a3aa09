"""Neural network layers, each of which combines parameters with a forward function."""

from minicaps.nn import capsules, layers, matrix, module
from minicaps.nn.capsules import *
from minicaps.nn.layers import *
from minicaps.nn.matrix import *
from minicaps.nn.module import *

__all__ = [*capsules.__all__, *layers.__all__, *matrix.__all__, *module.__all__]
