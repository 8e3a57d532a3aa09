"""Routing algorithms, which compute poses, activations and couplings of parents from their votes.

Every routing takes votes (B, I, J, D) and returns `Routed(poses, activations, couplings)`. Inside
`keep_history`, the result also includes the history of all iterations. All routings accept
`windows`, which describe the children of a convolutional layer
(`minicaps.routing.couplings.Windows`). Each routing is based on a clustering algorithm.
"""

from minicaps.routing.agreement import agreement, agreement_plain
from minicaps.routing.blocks import make_votes, make_votes_plain, route_in_blocks
from minicaps.routing.distance import distance, distance_plain
from minicaps.routing.em import em, em_plain
from minicaps.routing.fixed_point import cosine_activation, fixed_point, self_consistent_pooling
from minicaps.routing.registry import ROUTINGS
from minicaps.routing.routed import GRADIENTS, UPDATES, Routed, keep_history

__all__ = [
    "GRADIENTS", "ROUTINGS", "UPDATES", "Routed", "agreement", "agreement_plain",
    "cosine_activation", "distance", "distance_plain", "em", "em_plain", "fixed_point",
    "keep_history", "make_votes", "make_votes_plain", "route_in_blocks", "self_consistent_pooling",
]  # fmt: skip
