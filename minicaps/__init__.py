"""minicaps: a minimal, exact and fast NumPy/CuPy engine that teaches capsule networks.

Tensor, op, no_grad, ops      the engine: arrays that can be differentiated
minicaps.routing, clustering  votes in, capsules out, and the clusterings behind them
minicaps.nn, models           layers, and the networks by name
python -m minicaps            lists the commands
"""

from minicaps.cli import silence as _silence  # noqa: F401, I001 - first, before slow imports
from minicaps import ops
from minicaps.graph import no_grad
from minicaps.tensor import Tensor, op

__all__ = ["Tensor", "no_grad", "op", "ops"]
__version__ = "0.2.0"
