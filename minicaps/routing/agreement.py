"""Routing by agreement, in which a parent capsule emerges where votes agree.

Procedure 1 of Sabour, Frosst and Hinton 2017, and two variants that have fixed points:

    c_ij = softmax_j(β b_ij)                each child i divides itself among the parents j
    s_j  = Σ_i c_ij û_j|i                   a weighted sum of votes
    v_j  = squash(s_j)
    b_ij ← b_ij + ⟨û_j|i, v_j⟩              update="accumulate", as in the paper
    b_ij ← ⟨û_j|i, v_j⟩                     update="recompute": for large r, v solves an equation
    b_ij ← ⟨û_j|i, s_j/|s_j|⟩               update="spherical": K-means on directions

The plain version is composed of small ops. The fast version is a single op with a hand-derived
backward pass. This version reads the votes once for each of the sums above and keeps no other
arrays of the same size.
"""

from minicaps import ops
from minicaps.backend import array_module
from minicaps.routing.couplings import Windows, beside_orphans, couple
from minicaps.routing.fixed_point import meet_at_fixed_point
from minicaps.routing.routed import Routed, RoutingOptions, check_votes, keeping, read_out
from minicaps.tensor import Tensor, op


def agreement_plain(
    votes: Tensor, *, iterations: int = 3, update: str = "accumulate", gradient: str = "unrolled",
    inverse_temperature: float = 1.0, squash: str = "paper", orphans: bool = False,
    windows: Windows | None = None,
) -> Routed:  # fmt: skip
    """Reference implementation of `agreement`.

    The function follows the paper and takes the same arguments as `agreement`.
    """
    β = inverse_temperature
    RoutingOptions(iterations, update, gradient, β, squash)  # raises for invalid ones
    check_votes(votes)

    def gather(votes, b):
        c = couple(β * b, axis=2, orphans=orphans, windows=windows)  # (B, I, J)
        s = ops.einsum("bij,bijd->bjd", c, votes)
        return s, Tensor(beside_orphans(c.data, windows)) if orphans else c

    def move(s):
        return ops.direction(s) if update == "spherical" else ops.squash(s, kind=squash)

    def agree(votes, v):
        return ops.einsum("bijd,bjd->bij", votes, v)

    def meet(votes, v):
        return gather(votes, agree(votes, v))

    zeros = array_module(votes.data).zeros
    if gradient == "implicit":
        v = Tensor(zeros((votes.shape[0], *votes.shape[2:]), votes.dtype))  # no vote agrees with it
        s, c, earlier = meet_at_fixed_point(meet, move, votes, v, iterations - 1)
        return read_out(s, c, squash, earlier)
    seen = votes.detach() if gradient == "stop" else votes  # the couplings depend on these
    b, earlier = Tensor(zeros(votes.shape[:3], votes.dtype)), []
    for _ in range(iterations - 1):
        s, c = gather(seen, b)
        earlier.append((s, c))
        agreed = agree(seen, move(s))
        b = b + agreed if update == "accumulate" else agreed
    return read_out(*gather(votes, b), squash, earlier)


def agreement(
    votes: Tensor, *, iterations: int = 3, update: str = "accumulate", gradient: str = "unrolled",
    inverse_temperature: float = 1.0, squash: str = "paper", orphans: bool = False,
    windows: Windows | None = None,
) -> Routed:  # fmt: skip
    """Route votes by agreement (Sabour, Frosst and Hinton 2017).

    Parameters
    ----------
    votes
        Votes (B, I, J, D) of I children for J parents.
    iterations
        Number of weighted sums, r. With "accumulate", more iterations also make couplings sharper,
        since b grows.
    update
        "accumulate" (as in the paper), "recompute" or "spherical"; see the module's docstring.
    gradient
        "unrolled" differentiates every iteration, and "stop" treats couplings as constants.
        "implicit" is the gradient of the fixed point, which is computed in at most `iterations`
        iterations (see `minicaps.routing.fixed_point`); this choice is not available with
        "accumulate".
    inverse_temperature
        β in softmax(β b). Larger values give sharper couplings.
    squash
        The kind of `minicaps.ops.squash` that is applied at the end.
    orphans
        Whether to use leaky routing, in which an additional parent, whose b stays 0, takes the
        children that agree with no other parent.
    windows
        See `minicaps.routing`.

    Returns
    -------
    Routed
        Poses (B, J, D), activations and couplings.
    """
    options = vars(RoutingOptions(iterations, update, gradient, inverse_temperature, squash))
    check_votes(votes)
    parents = {"orphans": orphans, "windows": windows}
    if gradient == "implicit" or keeping.get():  # the fused version has no history
        return agreement_plain(votes, **options, **parents)
    poses, c = _agreement(votes, **options, parents=parents)
    c = c.transpose(0, 2, 1)
    return Routed(poses, ops.length(poses), Tensor(beside_orphans(c, windows) if orphans else c))


@op
def _agreement(votes, *, iterations, update, gradient, inverse_temperature, squash, parents):
    """Route votes in a single op; also return the couplings (B, J, I) of the last iteration."""
    xp = array_module(votes)
    U = votes.transpose(0, 2, 1, 3)  # (B, J, I, D): one matrix of votes for each parent
    # All samples, or the windows of all images, start with the same logits and couplings
    p, q = (1, 1) if parents["windows"] is None else parents["windows"].grid
    b = xp.zeros((p * q, *U.shape[1:3]), U.dtype)
    tape = []
    for t in range(iterations):
        c, pull_c = couple.raw(inverse_temperature * b, axis=1, **parents)
        if t == 0:
            c, b = xp.broadcast_to(c, (len(U) // (p * q), *c.shape)).reshape(U.shape[:3]), 0
        s = (c[:, :, None, :] @ U)[:, :, 0]  # (B, J, D)
        last = t == iterations - 1
        if update == "spherical" and not last:
            v, pull_v = ops.direction.raw(s)
        else:
            v, pull_v = ops.squash.raw(s, kind=squash)
        tape.append((c, pull_c, v, pull_v))
        if not last:
            agreed = (U @ v[..., None])[..., 0]  # (B, J, I)
            b = b + agreed if update == "accumulate" else agreed

    def pullback(g):
        # ∂loss/∂U is a sum of outer products a_t ⊗ ḡ_t, one per use of U: one product at the end.
        weights, vectors, grad_b = [], [], None
        for t in reversed(range(iterations)):
            c, pull_c, v, pull_v = tape[t]
            if grad_b is not None:  # agreed = U v
                weights.append(grad_b)
                vectors.append(v)
                g = (grad_b[:, :, None, :] @ U)[:, :, 0]
            grad_s = pull_v(g)
            weights.append(c)  # s = c U
            vectors.append(grad_s)
            if gradient == "stop" or t == 0:
                break
            through_c = inverse_temperature * pull_c((U @ grad_s[..., None])[..., 0])
            passed_on = grad_b if update == "accumulate" and grad_b is not None else 0
            grad_b = through_c + passed_on
        weights = xp.stack(weights, axis=2).transpose(0, 1, 3, 2)  # (B, J, I, terms)
        return (weights @ xp.stack(vectors, axis=2)).transpose(0, 2, 1, 3)

    return v, pullback, c
