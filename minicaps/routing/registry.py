"""The routings of vectors by name, as layers, networks and commands ask for them.

A new routing is a function of votes that returns `Routed`, with keyword arguments of those in
`RoutingOptions` that it has and `windows`; and a line in ROUTINGS.
"""

import inspect
from functools import partial

from minicaps.routing.agreement import agreement
from minicaps.routing.distance import distance
from minicaps.routing.learned import learned
from minicaps.routing.routed import RoutingOptions

ROUTINGS = {
    "agreement": agreement,
    "leaky": partial(agreement, orphans=True),
    "distance": distance,
}
NO_OPTIONS = {"votes", "logits", "orphans", "windows"}  # what layers give


def choose(name, **options):
    """Return the routing `name`, or "learned" couplings, with these options: a function of votes.

    None leaves a default. Raises ValueError for an unknown name and for options that are wrong.
    """
    routings = {**ROUTINGS, "learned": learned}
    if name not in routings:
        raise ValueError(f"unknown routing {name!r}: choose {', '.join(routings)}")
    options = {key: value for key, value in options.items() if value is not None}
    known = inspect.signature(routings[name]).parameters.keys() - NO_OPTIONS
    if unknown := sorted(options.keys() - known):
        unknown, known = ", ".join(unknown), ", ".join(sorted(known))
        raise ValueError(f"{unknown}: no option of {name} routing, which has {known}")
    logits = {} if "update" in known else {"update": None}
    RoutingOptions(**logits | options)  # refuses wrong values
    return partial(routings[name], **options)
