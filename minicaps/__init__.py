"""minicaps: a minimal, exact and fast NumPy/CuPy engine that teaches capsule networks."""

from minicaps import ops
from minicaps.tensor import Tensor, no_grad, op

__all__ = ["Tensor", "no_grad", "op", "ops"]
__version__ = "0.1.0"
