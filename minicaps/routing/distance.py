"""Distance routing, in which each parent is a mean of nearby votes.

Distance routing is soft K-means on the votes of each sample, with one vote per child and parent:

    ψ_ij = softmax_j(−λ |û_j|i − m_j|²)     a child divides itself among the parents near its votes
    m_j  = Σ_i ψ_ij û_j|i / Σ_i ψ_ij        a mean: its length is independent of the number of votes
    v_j  = squash(m_j)                      at the end

ψ is initially uniform. If there are no votes near a parent, its mean is 0.
"""

from minicaps import ops
from minicaps.backend import array_module
from minicaps.clustering.steps import LEAST, inverse, weighted_mean
from minicaps.routing.couplings import Windows, couple
from minicaps.routing.fixed_point import meet_at_fixed_point
from minicaps.routing.routed import Routed, RoutingOptions, check_votes, keeping, read_out
from minicaps.tensor import Tensor, op


def distance_plain(
    votes: Tensor, *, iterations: int = 3, gradient: str = "unrolled",
    inverse_temperature: float = 1.0, squash: str = "paper", windows: Windows | None = None,
) -> Routed:  # fmt: skip
    """Reference implementation of `distance`.

    The function follows the equations and takes the same arguments as `distance`.
    """
    λ = inverse_temperature
    RoutingOptions(iterations, None, gradient, λ, squash)  # raises for invalid ones
    check_votes(votes)

    def gather(votes, logits):
        ψ = couple(logits, axis=2, windows=windows)  # (B, I, J)
        total = ops.sum(ψ, axis=1, keepdims=True)
        alive = total.data > LEAST
        share = ψ * (alive / ops.where(alive, total, 1))
        return ops.einsum("bij,bijd->bjd", share, votes), ψ

    def near(votes, m):
        return -λ * ops.sum((votes - m[:, None]) ** 2, axis=3)

    def meet(votes, m):
        return gather(votes, near(votes, m))

    logits = Tensor(array_module(votes.data).zeros(votes.shape[:3], votes.dtype))
    if gradient == "implicit":
        first = gather(votes, logits)
        m, ψ, earlier = meet_at_fixed_point(meet, lambda m: m, votes, first[0], iterations - 2)
        return read_out(m, ψ, squash, [first, *earlier])
    seen = votes.detach() if gradient == "stop" else votes  # the couplings depend on these
    earlier = []
    for _ in range(iterations - 1):
        earlier.append(gather(seen, logits))
        logits = near(seen, earlier[-1][0])
    return read_out(*gather(votes, logits), squash, earlier)


def distance(
    votes: Tensor, *, iterations: int = 3, gradient: str = "unrolled",
    inverse_temperature: float = 1.0, squash: str = "paper", windows: Windows | None = None,
) -> Routed:  # fmt: skip
    """Route votes by distance.

    Parameters
    ----------
    votes
        Votes (B, I, J, D) of I children for J parents.
    iterations
        Number of means, r.
    gradient
        "unrolled", "stop" or "implicit", as in `agreement`.
    inverse_temperature
        λ, in units of 1/votes².
    squash
        The kind of `minicaps.ops.squash` that is applied at the end.
    windows
        See `minicaps.routing`.

    Returns
    -------
    Routed
        Poses (B, J, D), activations and couplings.
    """
    options = vars(RoutingOptions(iterations, None, gradient, inverse_temperature, squash))
    del options["update"]
    check_votes(votes)
    if gradient == "implicit" or keeping.get():  # the fused version has no history
        return distance_plain(votes, windows=windows, **options)
    poses, ψ = _distance(votes, **options, windows=windows)
    return Routed(poses, ops.length(poses), Tensor(ψ.transpose(0, 2, 1)).detach())


@op
def _distance(votes, *, iterations, gradient, inverse_temperature, squash, windows):
    """Route votes in a single op; also return the couplings (B, J, I) of the last iteration."""
    xp, λ = array_module(votes), inverse_temperature
    X = xp.ascontiguousarray(votes.transpose(0, 2, 3, 1))  # (B, J, D, I), as weighted_mean reads it
    scale = xp.full(X.shape[2], -λ, X.dtype)
    logits = xp.zeros((*X.shape[:2], X.shape[3]), X.dtype)
    tape = []
    for t in range(iterations):
        ψ, pull_ψ = couple.raw(logits, axis=1, windows=windows)
        total, share, m = weighted_mean(X, ψ)
        tape.append((pull_ψ, inverse(total), share, m))
        if t < iterations - 1:
            square = X - m[..., None]
            square *= square
            logits = scale @ square
    v, pull_v = ops.squash.raw(m, kind=squash)

    def pullback(g):
        # ∂loss/∂X is a sum of outer products and, from the squares, of multiples of X.
        vectors, weights, grad_m, own = [], [], pull_v(g), 0
        for t in reversed(range(iterations)):
            pull_ψ, inverse_total, share, m = tape[t]
            vectors.append(grad_m)  # m = X share
            weights.append(share)
            if gradient == "stop" or t == 0:
                break
            # share = ψ / Σ ψ, so ∂m/∂ψ_i = (x_i − m) / Σ ψ
            along = (grad_m[..., None, :] @ X)[..., 0, :] - (grad_m * m).sum(axis=2)[..., None]
            grad_logits = pull_ψ(inverse_total[..., None] * along)
            # logits = −λ |x − m|², with m from the previous iteration
            m = tape[t - 1][-1]
            own = own - 2 * λ * grad_logits
            vectors.append(2 * λ * m)
            weights.append(grad_logits)
            moment = (X @ grad_logits[..., None])[..., 0]
            grad_m = 2 * λ * (moment - grad_logits.sum(axis=2)[..., None] * m)
        grad_X = xp.stack(vectors, axis=3) @ xp.stack(weights, axis=2)
        if len(weights) > 1:
            grad_X += own[:, :, None] * X
        return grad_X.transpose(0, 3, 1, 2)

    return v, pullback, ψ
