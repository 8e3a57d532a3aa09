"""Fixed points v = f(v, θ), computed by iteration, and their gradients.

v ← f(v, θ) converges if f is a contraction. Given g = ∂loss/∂v, there are two ways to compute
∂loss/∂θ:

    unrolled    through every iteration, as through any program; all iterations are kept for it
    implicit    v = f(v, θ)  ⇒  dv = ∂f/∂v dv + ∂f/∂θ dθ  ⇒  ∂loss/∂θ = (∂f/∂θ)ᵀ w
                with w = g + (∂f/∂v)ᵀ w, another fixed point; only v is kept
"""

import math
import warnings
from collections.abc import Callable

from minicaps import ops
from minicaps.backend import array_module
from minicaps.graph import joint, no_grad, recording
from minicaps.routing.routed import keeping
from minicaps.tensor import Tensor, op

REST = 16  # a sample that changes by no more than this many rounding errors has converged


def fixed_point(
    step: Callable, start: Tensor, *parameters: Tensor, iterations: int, gradient: str = "unrolled"
) -> Tensor:
    """Repeat v ← step(v, *parameters) `iterations` times, starting from the tensor `start`.

    step: a function of tensors, composed of ops, that processes all samples (along the first axis)
    independently and does not depend on other tensors. gradient: "unrolled", or "implicit" for the
    gradient of the solution. With "implicit", `iterations` is a maximum, and a sample no longer
    changes once it has converged. Checking for convergence waits for the device. If any sample has
    not converged, a RuntimeWarning reports the largest residual |f(v) − v| / |f(v)|.
    """
    if gradient not in ("unrolled", "implicit"):
        raise ValueError(f"unknown gradient {gradient!r}: choose unrolled or implicit")
    if iterations < 0:
        raise ValueError(f"iterations must be at least 0, not {iterations}")
    if gradient == "implicit":
        start = start.detach().data
        return _fixed_point(*parameters, step=step, start=start, iterations=iterations)[0]
    v = start
    for _ in range(iterations):
        v = step(v, *parameters)
    return v


@op
def _fixed_point(*parameters, step, start, iterations):
    """Return the solution, which does not depend on `start`, and the list of iterates."""

    def f(v):
        with no_grad():
            return step(Tensor(v), *map(Tensor, parameters)).data

    def pull(w, wanted):
        """Return (∂f/∂v)ᵀ w and (∂f/∂θ)ᵀ w at the solution, or None where not required."""
        arrays = zip((solution, *parameters), wanted, strict=True)
        inputs = [Tensor(x, requires_grad=want) for x, want in arrays]
        with recording(True):
            step(*inputs).backward(w)
        return [x.grad for x in inputs]

    def sweep(g, wanted):
        of_v = (True, *(False for _ in wanted))
        what = "the gradient of a fixed point"
        w = _iterate(lambda w: g + pull(w, of_v)[0], g, iterations, what, [])
        return pull(w, (False, *wanted))[1:]

    visited = [start]
    solution = _iterate(f, start, iterations, "a fixed point", visited)
    return solution, joint(sweep), visited


def _iterate(f, v, iterations, what, visited):
    """Repeat v ← f(v) until all samples have converged or `iterations` is reached.

    Inside `keep_history`, append each v to `visited`.
    """
    xp = array_module(v)
    axes = tuple(range(1, v.ndim))
    tolerance = REST * float(xp.finfo(v.dtype).eps)
    for left in reversed(range(iterations + 1)):
        new = f(v)
        size = xp.abs(new).sum(axis=axes, keepdims=True)
        moved = xp.abs(new - v).sum(axis=axes, keepdims=True)
        finite = xp.isfinite(size)
        active = ~(finite & (moved <= tolerance * size))
        if not active.any():
            return v
        if left:
            v = xp.where(active & finite, new, v)  # no sample depends on the others
            if keeping.get():
                visited.append(v)
    moved = xp.where(finite, moved, math.inf)
    residual = float((moved / xp.where(finite & (size > 0), size, 1)).max())
    found = f"{iterations} iterations did not find {what}: one more changes it by {residual:.0e}"
    advice = "Allow more iterations or, in routing, lower inverse_temperature"
    warnings.warn(f"{found} of its size. {advice}", RuntimeWarning, stacklevel=2)
    return v


def meet_at_fixed_point(meet, move, votes, v, iterations):
    """Return s, c = meet(votes, v) at the fixed point v = move(s) with the implicit gradient.

    The iteration starts from the given v. The third value is a list of (s, c) from all iterations
    inside `keep_history` and an empty list otherwise.
    """
    step, start = lambda v, votes: move(meet(votes, v)[0]), v.detach().data
    v, visited = _fixed_point(votes, step=step, start=start, iterations=iterations)
    earlier = [meet(votes, Tensor(before)) for before in visited[:-1]] if keeping.get() else []
    return *meet(votes, v), earlier


def cosine_activation(x: Tensor, *, iterations: int = 50, gradient: str = "unrolled") -> Tensor:
    """Solve y + cos y = x elementwise by iterating y ← x − cos y, starting from y = x.

    Convergence is slow if the derivative of an iteration, sin y, is close to ±1. The remaining
    arguments are described in `fixed_point`. The first axis of x indexes the samples.
    """
    return fixed_point(lambda y, x: x - ops.cos(y), x, x, iterations=iterations, gradient=gradient)


def self_consistent_pooling(
    x: Tensor, *, iterations: int = 50, gradient: str = "unrolled"
) -> Tensor:
    """Pool vectors x (B, I, D) into m (B, D) with m = Σ_i softmax_i(⟨m, x_i⟩) x_i.

    The iteration starts from the mean. The weights depend on the result m itself. The remaining
    arguments are described in `fixed_point`.
    """

    def step(m, x):
        attention = ops.softmax(ops.einsum("bd,bid->bi", m, x), axis=1)
        return ops.einsum("bi,bid->bd", attention, x)

    return fixed_point(step, ops.mean(x, axis=1), x, iterations=iterations, gradient=gradient)
