"""Routing: votes in, poses, activations and couplings out. As many routings as clusterings.

Every routing takes votes (B, I, J, D) and returns `Routed(poses, activations, couplings)`.
"""

from minicaps.routing.agreement import agreement, agreement_plain
from minicaps.routing.blocks import route_in_blocks
from minicaps.routing.contract import Routed

__all__ = ["Routed", "agreement", "agreement_plain", "route_in_blocks"]
