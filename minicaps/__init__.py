"""minicaps: a minimal, exact and fast NumPy/CuPy engine that teaches capsule networks."""

from minicaps import ops
from minicaps.graph import no_grad
from minicaps.tensor import Tensor, op

__all__ = ["Tensor", "no_grad", "op", "ops"]
__version__ = "0.1.0"
