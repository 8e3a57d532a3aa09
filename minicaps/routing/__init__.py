"""Routing: votes in, poses, activations and couplings out. As many routings as clusterings.

Every routing takes votes (B, I, J, D) and returns `Routed(poses, activations, couplings)`. All
take `history`, a list to which the Routed of every iteration is appended, without gradients, and
`windows`, where the children are those of a convolution (`minicaps.routing.coupling.Windows`).
"""

from functools import partial

from minicaps.routing.agreement import UPDATES, agreement, agreement_plain
from minicaps.routing.blocks import make_votes, make_votes_plain, route_in_blocks
from minicaps.routing.distance import distance, distance_plain
from minicaps.routing.em import em
from minicaps.routing.fixed_point import cosine_activation, fixed_point, self_consistent_pooling
from minicaps.routing.routed import GRADIENTS, Routed

# name -> routing of vectors
ROUTINGS = {
    "agreement": agreement,
    "leaky": partial(agreement, orphans=True),
    "distance": distance,
}

__all__ = [
    "GRADIENTS",
    "ROUTINGS",
    "UPDATES",
    "Routed",
    "agreement",
    "agreement_plain",
    "cosine_activation",
    "distance",
    "distance_plain",
    "em",
    "fixed_point",
    "make_votes",
    "make_votes_plain",
    "route_in_blocks",
    "self_consistent_pooling",
]
