"""minicaps: a minimal, exact and fast NumPy/CuPy engine for learning how capsule networks work.

Tensor, op, no_grad, ops      the engine: tensors, differentiable functions and automatic gradients
minicaps.routing, clustering  routing algorithms, and the clustering algorithms on which they build
minicaps.nn, models           layers, and complete networks by name
python -m minicaps            lists the commands
"""

from minicaps.cli import silence as _silence  # noqa: F401, I001 - first, before slow imports
from minicaps import ops
from minicaps.graph import no_grad
from minicaps.tensor import Tensor, op

__all__ = ["Tensor", "no_grad", "op", "ops"]
__version__ = "0.1.0"
