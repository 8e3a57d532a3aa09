"""The routings of vectors in ONNX, with all iterations unrolled.

Their equations are in the modules of the same names in `minicaps.routing`. The gradient does not
affect the values. With the implicit gradient, minicaps stops a sample once it has converged, and a
graph goes on; the difference is of the size of rounding errors.
"""

from collections.abc import Callable
from typing import NamedTuple

from minicaps import routing
from minicaps.backend import to_host
from minicaps.errors import UserError
from minicaps.export.onnx_ops import couple, direction, inverse
from minicaps.export.onnx_ops import squash as squashed
from minicaps.routing.couplings import couple as couple_arrays
from minicaps.routing.learned import learned as learned_routing

MOST = 500  # iterations; unrolled, each adds about ten nodes


class Votes(NamedTuple):
    """Votes û_j|i of I children for J parents, each of D numbers.

    Attributes
    ----------
    make : function that adds the votes and returns their name, (B, J, I, D)
    total : function that adds Σ_i û_j|i (B, J, D), which needs no votes, and returns its name
    shape : (I, J)
    """

    make: Callable[[], str]
    total: Callable[[], str]
    shape: tuple[int, int]


def route(graph, votes, layer):
    """Add the poses (B, J, D) to which a `minicaps.nn.Routing` routes votes.

    Raises UserError for a routing that has no graph.
    """
    options = {k: v for k, v in layer.route.keywords.items() if k != "gradient"}
    if layer.route.func is learned_routing:
        return learned(graph, votes, layer.logits, **options)
    if layer.route.func not in GRAPHS:
        name = getattr(layer.route.func, "__name__", layer.route.func)
        raise UserError(f"{name} routing cannot be exported to ONNX: choose --to safetensors")
    check_iterations(options.get("iterations", 1))
    return GRAPHS[layer.route.func](graph, votes, **options)


def check_iterations(count):
    """Raise UserError if an unrolled graph would be too large."""
    if count > MOST:
        raise UserError(
            f"a routing of {count:,} iterations cannot be exported to ONNX, where at most"
            f" {MOST} are unrolled: choose --to safetensors"
        )


def agreement(
    graph, votes, *, iterations=3, update="accumulate", inverse_temperature=1.0, squash="paper",
    orphans=False,
):  # fmt: skip
    """Add routing by agreement."""
    # s_j = Σ_i û_j|i / J at first, or / (J + 1) with orphans
    s = graph.add("Div", votes.total(), float(votes.shape[1] + orphans))
    U, b = votes.make() if iterations > 1 else None, None
    for _ in range(iterations - 1):
        # b_ij ← b_ij + ⟨û_j|i, v_j⟩, (B, J, I)
        spherical = update == "spherical"
        v = direction(graph, s, axis=2) if spherical else squashed(graph, s, axis=2, kind=squash)
        agreed = graph.add("MatMul", U, graph.add("Unsqueeze", v, [3]))
        agreed = graph.add("Squeeze", agreed, [3])
        b = graph.add("Add", b, agreed) if b and update == "accumulate" else agreed
        # c_ij = softmax_j(β b_ij), s_j = Σ_i c_ij û_j|i
        heated = b if inverse_temperature == 1 else graph.add("Mul", b, inverse_temperature)
        s = weighted_sum(graph, couple(graph, heated, axis=1, orphans=orphans), U)
    return squashed(graph, s, axis=2, kind=squash)


def distance(graph, votes, *, iterations=3, inverse_temperature=1.0, squash="paper"):
    """Add distance routing."""
    # m_j = Σ_i û_j|i / I at first
    m = graph.add("Div", votes.total(), float(votes.shape[0]))
    X = votes.make() if iterations > 1 else None
    for _ in range(iterations - 1):
        # ψ_ij = softmax_j(−λ |û_j|i − m_j|²), (B, J, I)
        deviation = graph.add("Sub", X, graph.add("Unsqueeze", m, [2]))
        square = graph.add("ReduceSumSquare", deviation, [3], keepdims=0)
        ψ = couple(graph, graph.add("Mul", square, -inverse_temperature), axis=1)
        # m_j = Σ_i ψ_ij û_j|i / Σ_i ψ_ij
        share = graph.add("Mul", ψ, inverse(graph, graph.add("ReduceSum", ψ, [2])))
        m = weighted_sum(graph, share, X)
    return squashed(graph, m, axis=2, kind=squash)


def learned(graph, votes, logits, *, squash="paper"):
    """Add trained couplings softmax_j(b), which are constants. logits: b (I, J)."""
    c, _ = couple_arrays.raw(to_host(logits.data), axis=1)
    s = weighted_sum(graph, graph.constant(c.T), votes.make())
    return squashed(graph, s, axis=2, kind=squash)


def weighted_sum(graph, c, votes):
    """Add Σ_i c_ij û_j|i (B, J, D) of votes (B, J, I, D) with weights (B, J, I) or (J, I)."""
    return graph.add("Squeeze", graph.add("MatMul", graph.add("Unsqueeze", c, [-2]), votes), [2])


GRAPHS = {routing.agreement: agreement, routing.distance: distance}
