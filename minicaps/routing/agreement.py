"""Routing by agreement: a parent is where the votes that agree with it meet.

Sabour, Frosst and Hinton 2017, procedure 1, and two ways to read it as a fixed point:

    c_ij = softmax_j(β b_ij)                each child i divides itself among the parents j
    s_j  = Σ_i c_ij û_j|i                   a weighted sum of votes
    v_j  = squash(s_j)
    b_ij ← b_ij + ⟨û_j|i, v_j⟩              update="accumulate", the paper's
    b_ij ← ⟨û_j|i, v_j⟩                     update="recompute": v solves an equation as r grows
    b_ij ← ⟨û_j|i, s_j/|s_j|⟩               update="spherical": K-means on directions

The plain version is made of small ops. The fast one is a single op whose reverse sweep is derived
by hand; it visits the votes once for each sum above and keeps nothing of their size.
"""

import math

from minicaps.backend import array_module
from minicaps.ops.activation import softmax
from minicaps.ops.capsule import check_squash, direction, length
from minicaps.ops.capsule import squash as squash_vectors
from minicaps.ops.product import einsum
from minicaps.routing.contract import Routed
from minicaps.tensor import Tensor, op

UPDATES = ("accumulate", "recompute", "spherical")
GRADIENTS = ("unrolled", "stop")


def check_options(iterations, update, gradient, inverse_temperature, squash):
    """Raise ValueError for an option that agreement routing does not have."""
    if iterations < 1:
        raise ValueError(f"routing needs at least 1 iteration, not {iterations}")
    if not 0 < inverse_temperature < math.inf:
        raise ValueError(
            f"inverse_temperature must be positive and finite, not {inverse_temperature}"
        )
    if update not in UPDATES:
        raise ValueError(f"unknown update {update!r}: choose {', '.join(UPDATES)}")
    if gradient not in GRADIENTS:
        raise ValueError(f"unknown gradient {gradient!r}: choose {', '.join(GRADIENTS)}")
    check_squash(squash)


def check_votes(votes):
    """Raise ValueError unless `votes` has four axes and there is something to route."""
    if votes.ndim != 4 or 0 in votes.shape[1:]:
        raise ValueError(
            f"votes must have shape (B, I, J, D) with I, J and D at least 1, not {votes.shape}"
        )


def agreement_plain(
    votes,
    *,
    iterations=3,
    update="accumulate",
    gradient="unrolled",
    inverse_temperature=1.0,
    squash="paper",
):
    """Routing by agreement as it is written on paper. Same arguments as `agreement`."""
    check_options(iterations, update, gradient, inverse_temperature, squash)
    check_votes(votes)
    b = Tensor(array_module(votes.data).zeros(votes.shape[:3], votes.dtype))
    seen = votes.detach() if gradient == "stop" else votes  # what the couplings depend on
    for last in [False] * (iterations - 1) + [True]:
        u = votes if last else seen
        c = softmax(b * inverse_temperature, axis=2)  # (B, I, J)
        s = einsum("bij,bijd->bjd", c, u)
        if last:
            break
        v = direction(s) if update == "spherical" else squash_vectors(s, kind=squash)
        agreed = einsum("bijd,bjd->bij", u, v)
        b = b + agreed if update == "accumulate" else agreed
    v = squash_vectors(s, kind=squash)
    return Routed(v, length(v), c.detach())


def agreement(
    votes,
    *,
    iterations=3,
    update="accumulate",
    gradient="unrolled",
    inverse_temperature=1.0,
    squash="paper",
):
    """Route votes (B, I, J, D) by agreement; returns Routed(poses, activations, couplings).

    iterations: r, the number of weighted sums; with "accumulate" also a sharpness, since b grows.
    update: "accumulate" (the paper's), "recompute" or "spherical", see the module.
    gradient: "unrolled", through every iteration, or "stop", couplings taken as constants.
    inverse_temperature: β in softmax(β b); larger divides more sharply.
    squash: the kind of `minicaps.ops.squash` that ends the routing.
    """
    check_options(iterations, update, gradient, inverse_temperature, squash)
    check_votes(votes)
    record = []
    poses = _agreement(
        votes,
        iterations=iterations,
        update=update,
        gradient=gradient,
        inverse_temperature=inverse_temperature,
        squash=squash,
        record=record,
    )
    return Routed(poses, length(poses), Tensor(record[-1].transpose(0, 2, 1)))


@op
def _agreement(votes, *, iterations, update, gradient, inverse_temperature, squash, record):
    """The fused routing; the couplings (B, J, I) of the last iteration are appended to `record`."""
    xp = array_module(votes)
    U = votes.transpose(0, 2, 1, 3)  # (B, J, I, D): matrices of votes, one for each parent
    b = xp.zeros(U.shape[:3], U.dtype)
    tape = []
    for t in range(iterations):
        c, pull_c = softmax.__wrapped__(inverse_temperature * b, axis=1)
        s = (c[:, :, None, :] @ U)[:, :, 0]  # (B, J, D)
        last = t == iterations - 1
        if update == "spherical" and not last:
            v, pull_v = direction.__wrapped__(s)
        else:
            v, pull_v = squash_vectors.__wrapped__(s, kind=squash)
        tape.append((c, pull_c, v, pull_v))
        if not last:
            agreed = (U @ v[..., None])[..., 0]  # (B, J, I)
            b = b + agreed if update == "accumulate" else agreed
    record.append(c)

    def pullback(g):
        # ∂loss/∂U is a sum of outer products, a_t ⊗ ḡ_t for each use of U: one product at the end.
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
        grad_votes = xp.empty_like(votes)
        weights, vectors = xp.stack(weights, axis=3), xp.stack(vectors, axis=2)
        xp.matmul(weights, vectors, out=grad_votes.transpose(0, 2, 1, 3))
        return grad_votes

    return v, pullback
