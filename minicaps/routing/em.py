"""EM routing, which fits a Gaussian to the votes for each parent (Hinton et al. 2018).

R is initially uniform. The following steps are repeated `iterations` times, with w_ij = a_i R_ij:

    M  μ_j = Σ_i w_ij V_ij / Σ_i w_ij,  σ_j² = Σ_i w_ij (V_ij − μ_j)² / Σ_i w_ij
       cost_j = (β_u + Σ_d ln σ_jd) · Σ_i w_ij,  a_j = σ(λ (β_a − cost_j))
    E  R_ij ∝ a_j N(V_ij; μ_j, σ_j²), over the parents j

`step` selects a stage in the derivation of the paper's algorithm from a mixture of Gaussians:

    "gmm"               w_ij = R_ij, and π_j = Σ_i R_ij / I instead of a_j
    "activation"        a_j as above, but with the sum of shares, which is 1, instead of Σ_i w_ij
    "input-activation"  the same, but with w_ij = a_i R_ij
    "complete"          the algorithm above

The paper adds β_u once per dimension, so the β_u of the paper equals ours divided by D.
"""

import math
from collections import namedtuple
from collections.abc import Callable

import numpy as np

from minicaps import ops
from minicaps.backend import array_module
from minicaps.clustering.steps import LEAST, inverse, weighted_mean
from minicaps.graph import joint
from minicaps.routing.centred import Centred, over_dimensions
from minicaps.routing.couplings import Windows, couple
from minicaps.routing.routed import Routed, check_votes, keeping
from minicaps.tensor import Tensor, op

STEPS = ("gmm", "activation", "input-activation", "complete")


def paper_schedule(iteration):
    """Return the λ of the paper's authors, 0.01 (1 − 0.95^(t+1)), for iteration t = 0, 1, …"""
    return 0.01 * (1 - 0.95 ** (iteration + 1))


def em_plain(
    votes: Tensor, activations: Tensor | None = None, beta_u: Tensor | None = None,
    beta_a: Tensor | None = None, *, iterations: int = 3,
    inverse_temperature: float | Callable | None = None, step: str = "complete",
    gradient: str = "unrolled", start: Tensor | None = None, floor: float = 1e-4,
    windows: Windows | None = None,
) -> Routed:  # fmt: skip
    """Reference implementation of `em`.

    The function is composed of small ops and takes the same arguments as `em`.
    """
    given = {"activations": activations, "beta_u": beta_u, "beta_a": beta_a, "start": start}
    _check(votes, given, step, iterations, gradient, inverse_temperature, floor)
    R, history = _first(votes, start, windows), []
    for λ in _temperatures(inverse_temperature, iterations):
        # M: weighted moments of the votes
        w = R if activations is None else R * activations[:, :, None]
        total = ops.sum(w, axis=1)  # (B, J)
        alive = total.data > LEAST
        share = w * (alive / ops.where(alive, total, 1))[:, None]  # (B, I, J)
        mean = ops.einsum("bij,bijd->bjd", share, votes)
        square = (votes - mean[:, None]) ** 2
        variance = ops.clip(ops.einsum("bij,bijd->bjd", share, square), low=floor)
        log_scale = 0.5 * ops.sum(ops.log(variance), axis=2)  # Σ_d ln σ_jd, (B, J)
        if step == "gmm":
            log_a = ops.log(ops.clip(total / votes.shape[1], low=LEAST))  # ln π_j
        else:
            amount = total if step == "complete" else ops.sum(share, axis=1)
            log_a = ops.log_sigmoid(λ * (beta_a - (beta_u + log_scale) * amount))
        routed = Routed(mean, ops.exp(log_a), R.detach())
        history += [routed.map(Tensor.detach)] if keeping.get() else []
        # E: which Gaussian explains the vote?
        log_p = -0.5 * ops.sum(square / variance[:, None], axis=3) - log_scale[:, None]
        R = couple(log_p + log_a[:, None], windows=windows)
        R = R.detach() if gradient == "stop" else R
    return routed.with_history(history)


def em(
    votes: Tensor, activations: Tensor | None = None, beta_u: Tensor | None = None,
    beta_a: Tensor | None = None, *, iterations: int = 3,
    inverse_temperature: float | Callable | None = None, step: str = "complete",
    gradient: str = "unrolled", start: Tensor | None = None, floor: float = 1e-4,
    windows: Windows | None = None,
) -> Routed:  # fmt: skip
    """Route votes by EM (Hinton, Sabour and Frosst 2018).

    Parameters
    ----------
    votes
        Votes (B, I, J, D) of I children for J parents.
    activations
        Activations (B, I) of the children, which are probabilities. Pass this argument and the
        following two only if `step` uses them.
    beta_u, beta_a
        Learned parameters, (J,).
    iterations
        Number of M steps.
    inverse_temperature
        λ, a number or a function of the iteration 0, 1, …. The default is `paper_schedule`.
    step
        See the module's docstring.
    gradient
        "unrolled" differentiates every iteration, and "stop" treats responsibilities as constants.
    start
        Initial responsibilities (B, I, J), uniform by default.
    floor
        Lower limit of the variances.
    windows
        See `minicaps.routing`.

    Returns
    -------
    Routed
        Means (B, J, D), activations and couplings.
    """
    given = {"activations": activations, "beta_u": beta_u, "beta_a": beta_a, "start": start}
    _check(votes, given, step, iterations, gradient, inverse_temperature, floor)
    joined, tape = _em(
        votes, activations, beta_u, beta_a,
        start=_first(votes, start, windows).data.transpose(0, 2, 1),
        temperatures=_temperatures(inverse_temperature, iterations),
        step=step, gradient=gradient, floor=floor, windows=windows,
    )  # fmt: skip
    routed = [Routed(r.mean, r.a, r.R.transpose(0, 2, 1)) for r in tape]
    routed = [each.map(lambda x: Tensor(x).detach()) for each in routed]
    last = Routed(joined[..., :-1], joined[..., -1], routed[-1].couplings)
    return last.with_history(routed if keeping.get() else ())


def _first(votes, start, windows):
    """Return the initial responsibilities, which are uniform unless `start` is given."""
    if start is None:
        zeros = array_module(votes.data).zeros(votes.shape[:3], votes.dtype)
        start = couple(Tensor(zeros), windows=windows)
    return Tensor((start.data if isinstance(start, Tensor) else start).astype(votes.dtype))


def _temperatures(inverse_temperature, iterations):
    """Return λ for every iteration."""
    λ = paper_schedule if inverse_temperature is None else inverse_temperature
    values = [float(λ(t) if callable(λ) else λ) for t in range(iterations)]
    if not all(0 < value < math.inf for value in values):
        raise ValueError(f"inverse_temperature must be positive and finite, not {values}")
    return values


def _check(votes, given, step, iterations, gradient, inverse_temperature, floor):
    """Raise ValueError if an argument is invalid or would have no effect."""
    check_votes(votes)
    if step not in STEPS:
        raise ValueError(f"unknown step {step!r}: choose {', '.join(STEPS)}")
    if not 1 <= iterations <= 10_000:
        raise ValueError(f"routing takes 1 to 10,000 iterations, not {iterations}")
    if gradient not in ("unrolled", "stop"):
        raise ValueError(f"unknown gradient {gradient!r}: choose unrolled or stop")
    if iterations == 1 and gradient == "stop":
        raise ValueError("gradient 'stop' has no effect in 1 iteration: leave it out")
    if step == "gmm" and inverse_temperature is not None:
        raise ValueError("inverse_temperature has no effect in step 'gmm': leave it out")
    if not float(np.finfo(votes.dtype).tiny) <= floor < math.inf:
        raise ValueError(f"the floor must be positive and finite in {votes.dtype}, not {floor}")
    b, i, j, _ = votes.shape
    shapes = {"activations": (b, i), "beta_u": (j,), "beta_a": (j,), "start": (b, i, j)}
    betas = step != "gmm"
    used = {"activations": step in STEPS[2:], "beta_u": betas, "beta_a": betas}
    for name, value in given.items():
        if name in used and used[name] != (value is not None):
            raise ValueError(f"step {step!r} {'needs' if used[name] else 'does not use'} {name}")
        if value is not None and value.shape != shapes[name]:
            raise ValueError(f"{name} must have shape {shapes[name]}, not {value.shape}")
    for name in ("activations", "start"):
        _check_range(name, given[name])


def _check_range(name, value):
    """Raise ValueError if an array on the CPU contains values that are not probabilities.

    Arrays on a GPU are not checked, because reading them would stall the computation.

    NaN is accepted, because it propagates to the result and is noticed there. Values slightly above
    1 are also accepted, because a length of 1 may have a rounding error.
    """
    value = value.data if isinstance(value, Tensor) else value
    if isinstance(value, np.ndarray) and ((value < 0) | (value > 1.001)).any():
        span = f"{value.min():.3g} to {value.max():.3g}"
        raise ValueError(f"{name} must be from 0 to 1, but these are from {span}")


# What an iteration keeps for the backward pass: R and share (B, J, I), total and a (B, J), mean,
# mean − centre, variance and centre (B, J, D), the pullback of ln a, and that of R to the logits of
# the previous E step.
_Iteration = namedtuple("_Iteration", "R total share mean shift variance centre a pull_a pull_R")


@op
def _em(votes, activations, beta_u, beta_a, *, start, temperatures, step, windows, **way):
    """Route votes in a single op; return an array (B, J, D + 1) and the `_Iteration` objects.

    Means and activations share one array because an op has only one differentiable value.

    way: the options floor and gradient.
    """
    xp = array_module(votes)
    X = xp.ascontiguousarray(votes.transpose(0, 2, 3, 1))  # (B, J, D, I), as m_step reads it
    R, pull_R, tape, held = start, None, [], None
    for λ in temperatures:
        w = R if activations is None else R * activations[:, None]
        held = held or Centred(X, weighted_mean(X, w)[2])
        total, _, mean, shift, variance = moments = held.m_step(w, way["floor"])
        log_a, pull_a = _log_activation(total, variance, beta_u, beta_a, λ, step, X.shape[3])
        tape.append(_Iteration(R, *moments, held.centre, xp.exp(log_a), pull_a, pull_R))
        if len(tape) < len(temperatures):
            logits = held.log_density(shift, variance) + log_a[..., None]
            R, pull_R = couple.raw(logits, axis=1, windows=windows)
    joined = xp.concatenate([mean, tape[-1].a[..., None]], axis=2)
    return joined, joint(lambda g, wanted: _reverse(g, X, activations, tape, **way)), tape


def _log_activation(total, variance, beta_u, beta_a, λ, step, children):
    """Return ln a_j (B, J) and its pullback to total, variance, β_u and β_a."""
    xp = array_module(total)
    if step == "gmm":
        π = total / children
        alive = π > LEAST
        log_π = xp.log(xp.where(alive, π, LEAST))
        return log_π, lambda g: (g * inverse(total) * alive, xp.zeros_like(variance), 0, 0)
    scale = beta_u + 0.5 * xp.log(variance).sum(axis=2)  # β_u + Σ_d ln σ_jd
    amount = total if step == "complete" else (total > LEAST).astype(total.dtype)
    z = λ * (beta_a - scale * amount)

    def pullback(g):
        grad_z = λ * g * ops.sigmoid.raw(-z)[0]
        grad_scale = -grad_z * amount
        grad_total = -grad_z * scale if step == "complete" else xp.zeros_like(total)
        return grad_total, 0.5 * grad_scale[..., None] / variance, grad_scale, grad_z

    return ops.log_sigmoid.raw(z)[0], pullback


def _reverse(g, X, activations, tape, floor, gradient):
    """Backpropagate through the iterations to the votes, the activations, β_u and β_a.

    A bar denotes the gradient of the loss, as in V̄ for the gradient with respect to the votes.
    G_ij is the gradient of the logits in the E step after an iteration, and s_ij = w_ij / Σ_i w_ij
    are the shares of the iteration.
    """
    xp = array_module(X)
    grad_activations = grad_u = grad_a = 0
    grad_X, held, terms = None, Centred(X, tape[-1].centre), []
    grad_mean, grad_log_a = g[..., :-1], g[..., -1] * tape[-1].a
    grad_variance, grad_logits = 0, None
    for r in reversed(tape):
        moved = (r.centre != held.centre).any(axis=2)
        if terms and (xp is not np or moved.any()):  # digits would cancel about another centre
            grad_X, terms = held.add_gradients(grad_X, terms), []
        held.move(moved, r.centre)
        if grad_logits is not None:
            # E: logits_ij = ln a_j − ½ Σ_d ((V_ij − μ_j)²/σ_j² + ln σ_j²)
            # ∂/∂ln a_j = Σ_i G_ij;  μ̄_j = Σ_i G_ij (V_ij − μ_j)/σ_j²
            # ∂/∂σ_j² = (Σ_i G_ij (V_ij − μ_j)²/σ_j² − Σ_i G_ij) / 2σ_j²
            # G is measured in a power of 2, u, because G (V − μ)² may overflow
            u = xp.ldexp(r.a.dtype.type(1), xp.frexp(xp.abs(grad_logits).max(axis=2))[1] - 1)
            G, u = grad_logits / u[..., None], u[..., None]
            grad_log_a = grad_logits.sum(axis=2)
            first, second = held.sums(G, grad_log_a[..., None] / u, r.shift)
            grad_mean, fit = u * (first / r.variance), u * (second / r.variance)
            grad_variance = (fit - grad_log_a[..., None]) / (2 * r.variance)
        grad_total, through_a, of_u, of_a = r.pull_a(grad_log_a)
        grad_u, grad_a = grad_u + of_u, grad_a + of_a
        grad_variance = (grad_variance + through_a) * (r.variance > floor)
        # M: μ_j = Σ_i s_ij V_ij;  σ_j² = Σ_i s_ij (V_ij − μ_j)², whose ∂/∂μ_j vanishes
        # V̄_ij = s_ij μ̄_j + (2 s_ij ∂/∂σ_j² − G_ij/σ_j²)(V_ij − μ_j); the last term is from E
        slope = 2 * grad_variance
        terms.append((r.share, slope, grad_mean - slope * r.shift))
        if grad_logits is not None:
            terms.append((grad_logits, -1 / r.variance, r.shift / r.variance))
        # s̄_ij = Σ_d (∂/∂σ_j² (V_ij − μ_j)² + μ̄_j (V_ij − μ_j)), up to a term that all i share
        grad_share = over_dimensions(grad_variance, held.second)
        grad_share += over_dimensions(grad_mean - slope * r.shift, held.first)
        # s_ij = w_ij / Σ_i w_ij:  w̄_ij = (s̄_ij − Σ_k s_kj s̄_kj) / Σ_i w_ij;  w_ij = a_i R_ij
        grad_w = grad_share - (r.share * grad_share).sum(axis=2, keepdims=True)
        grad_w = grad_w * inverse(r.total)[..., None] + grad_total[..., None]
        if activations is not None:
            grad_activations = grad_activations + (grad_w * r.R).sum(axis=1)
            grad_w = grad_w * activations[:, None]
        if gradient == "stop" or r.pull_R is None:
            break
        grad_logits = r.pull_R(grad_w)
    grad_X = held.add_gradients(grad_X, terms)
    return grad_X.transpose(0, 3, 1, 2), grad_activations, grad_u, grad_a
