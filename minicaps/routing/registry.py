"""Registry of the routings of vectors under the names used by layers, networks and commands.

To add a routing, write a function of votes that returns `Routed`, with `windows` and the applicable
`RoutingOptions` as keyword arguments, and add it to ROUTINGS.
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
NO_OPTIONS = {"votes", "logits", "orphans", "windows"}  # provided by layers


def choose(name, **options):
    """Return the routing `name` with the given options as a function of votes.

    The name "learned" selects trained couplings. An option that is None takes its default value.
    Raises ValueError if the name or an option is invalid.
    """
    routings = {**ROUTINGS, "learned": learned}
    if name not in routings:
        raise ValueError(f"unknown routing {name!r}: choose {', '.join(routings)}")
    options = {key: value for key, value in options.items() if value is not None}
    known = inspect.signature(routings[name]).parameters.keys() - NO_OPTIONS
    if unknown := sorted(options.keys() - known):
        unknown, known = ", ".join(unknown), ", ".join(sorted(known))
        raise ValueError(f"{name} routing has no option {unknown}: choose from {known}")
    logits = {} if "update" in known else {"update": None}
    RoutingOptions(**logits | options)  # raises for invalid values
    return partial(routings[name], **options)
