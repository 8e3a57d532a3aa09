"""What every routing returns."""

from typing import NamedTuple

from minicaps.tensor import Tensor


class Routed(NamedTuple):
    """Output capsules of a routing.

    poses (B, J, D); activations (B, J), for vector capsules the lengths of the poses;
    couplings (B, I, J), how each input divides itself among the parents (rows sum to 1; a record
    of the last iteration, without a gradient).
    """

    poses: Tensor
    activations: Tensor
    couplings: Tensor
