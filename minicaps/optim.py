"""Optimizers, gradient clipping and learning-rate schedules.

An optimizer updates the parameters in place and never waits for the device.
"""

import math
from collections.abc import Callable, Iterable

import numpy as np

from minicaps.backend import Array, array_module, to_host
from minicaps.errors import ShowsCall
from minicaps.tensor import Tensor
from minicaps.threads import over_parts


class Optimizer(ShowsCall):
    """Base class of optimizers, which store one array per slot for each named parameter.

    Parameters
    ----------
    parameters
        A model, or an iterable of (name, tensor) pairs or of tensors. Tensors without names are
        called "0", "1", …; provide names if the state is to be saved.
    learning_rate
        The learning rate lr, which may be changed between steps.
    weight_decay
        Weight decay decoupled from the gradient, as in AdamW (Loshchilov and Hutter 2019):
        p ← p − lr · weight_decay · p.
    """

    slots: tuple[str, ...] = ()
    _update: Callable

    def __init__(self, parameters: object, learning_rate: float, weight_decay: float = 0.0):
        self.parameters = _by_name(parameters)
        if not 0 <= learning_rate < math.inf:
            raise ValueError(f"the learning rate must be nonnegative and finite: {learning_rate}")
        if not 0 <= weight_decay < math.inf:
            raise ValueError(f"the weight decay must be nonnegative and finite: {weight_decay}")
        self.learning_rate, self.weight_decay = learning_rate, weight_decay
        self.steps = 0
        self.updates = dict.fromkeys(self.parameters, 0)  # parameters without gradients are skipped
        self.state = {  # slot/name -> array
            f"{slot}/{name}": array_module(p.data).zeros_like(p.data)
            for slot in self.slots
            for name, p in self.parameters.items()
        }

    def step(self) -> None:
        """Update every parameter that has a gradient."""
        self.steps += 1
        rate = float(self.learning_rate)  # np.float64 would turn float32 into float64
        for name, p in self.parameters.items():
            if p.grad is None:
                continue
            if p.grad.shape != p.shape:
                raise ValueError(f"{name} is {p.shape}, but its gradient is {p.grad.shape}")
            self.updates[name] += 1
            data = p.data
            if self.weight_decay:
                data *= 1 - rate * self.weight_decay
            state = (self.state[f"{slot}/{name}"] for slot in self.slots)
            self._update(data, p.grad, rate, self.updates[name], *state)
            p.data = data  # the assignment marks the value as changed

    def state_dict(self) -> dict:
        """Return the state as {"steps": n, "updates/name": n, "slot/name": NumPy copy}."""
        updates = {f"updates/{name}": n for name, n in self.updates.items()}
        arrays = {key: np.array(to_host(array)) for key, array in self.state.items()}
        return {"steps": self.steps, **updates, **arrays}

    def load_state_dict(self, state: dict) -> None:
        """Load a state returned by `state_dict`; all names, shapes and dtypes must match."""
        expected = {"steps", *(f"updates/{name}" for name in self.parameters), *self.state}
        if expected != state.keys():
            wrong = ", ".join(sorted(expected ^ state.keys()))
            raise ValueError(f"the optimizer's state does not match: {wrong}")
        for key, array in self.state.items():
            saved, own = (f"{a.shape} {a.dtype}" for a in (state[key], array))
            if saved != own:
                raise ValueError(f"{key} is {saved} in the state but {own} in this optimizer")
        updates = {name: int(state[f"updates/{name}"]) for name in self.parameters}
        steps = int(state["steps"])
        if min(steps, *updates.values()) < 0:
            raise ValueError(f"the state has negative counts: {steps} steps, updates {updates}")
        for key, array in self.state.items():
            array[...] = array_module(array).asarray(state[key])
        self.steps, self.updates = steps, updates


def _by_name(parameters):
    """Return {name: tensor}; raise an error for parameters that cannot be trained correctly."""
    parameters = getattr(parameters, "named_parameters", lambda: parameters)()  # of a model
    pairs = list(parameters.items() if isinstance(parameters, dict) else parameters)
    if all(isinstance(p, Tensor) for p in pairs):
        pairs = [(str(k), p) for k, p in enumerate(pairs)]
    if not pairs or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise TypeError("an optimizer takes a model, its parameters, or (name, tensor) pairs")
    named = dict(pairs)
    for name, p in pairs:
        if not isinstance(p, Tensor) or not p.is_leaf:
            raise TypeError(f"{name} is not a tensor created with requires_grad=True")
        if isinstance(p.data, np.ndarray) and not p.data.flags.writeable:
            raise ValueError(f"the array of {name} is read-only: create the tensor from a copy")
    if len(named) < len(pairs) or len({id(p) for p in named.values()}) < len(pairs):
        raise ValueError("two parameters have the same name, or one parameter has two names")
    return named


class SGD(Optimizer):
    """Stochastic gradient descent with momentum: m ← μ m + g; p ← p − lr m.

    momentum: μ; with 0, this is plain gradient descent.
    """

    def __init__(
        self, parameters: object, learning_rate: float = 0.1, *, momentum: float = 0.9,
        weight_decay: float = 0.0,
    ):  # fmt: skip
        if not 0 <= momentum < 1:
            raise ValueError(f"the momentum must be at least 0 and less than 1, not {momentum}")
        self.momentum = momentum
        self.slots = ("momentum",) if momentum else ()
        super().__init__(parameters, learning_rate, weight_decay)

    def _update(self, p, g, rate, count, m=None):
        if m is not None:
            m *= self.momentum
            m += g
            g = m
        p -= rate * g


class Adam(Optimizer):
    """Adam (Kingma and Ba 2015) with decoupled weight decay.

    m ← β₁ m + (1−β₁) g;  v ← β₂ v + (1−β₂) g²;  p ← p − lr · m̂ / (√v̂ + ε), where a hat
    denotes division by 1−βᵗ, and t is the number of updates of this parameter.
    """

    slots = ("mean", "square")

    def __init__(
        self, parameters: object, learning_rate: float = 1e-3, *,
        betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0,
    ):  # fmt: skip
        if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas) or not eps > 0:
            raise ValueError(f"betas must be in [0, 1) and eps positive, not {betas} and {eps}")
        self.betas, self.eps = betas, eps
        super().__init__(parameters, learning_rate, weight_decay)
        for name, p in self.parameters.items():
            if p.dtype.type(eps) == 0:
                raise ValueError(f"eps {eps} is 0 in {p.dtype}, the dtype of {name}: try eps=1e-4")

    def _update(self, p, g, rate, count, m, v):
        def update(part):
            self._update_part(p[part], g[part], rate, count, m[part], v[part])

        over_parts(update, p)

    def _update_part(self, p, g, rate, count, m, v):
        xp = array_module(p)
        beta1, beta2 = self.betas
        scratch = xp.empty_like(p)
        xp.multiply(g, 1 - beta1, out=scratch)
        m *= beta1
        m += scratch
        xp.multiply(g, g, out=scratch)
        scratch *= 1 - beta2
        v *= beta2
        v += scratch
        xp.sqrt(v, out=scratch)
        scratch /= math.sqrt(1 - beta2**count)
        scratch += self.eps
        xp.divide(m, scratch, out=scratch)
        scratch *= rate / (1 - beta1**count)
        p -= scratch


def gradient_norm(parameters: Iterable[Tensor]) -> Array:
    """Return the joint norm of all gradients as a 0-d float64 array on the same device.

    In float64, the squares of float32 gradients cannot overflow.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    xp = array_module(*gradients)
    return xp.sqrt(sum(xp.linalg.norm(g.astype(xp.float64)) ** 2 for g in gradients))


def clip_gradient_norm(parameters: Iterable[Tensor], limit: float) -> Array:
    """Scale all gradients by a common factor so that their joint norm is at most `limit`.

    Returns the norm before clipping as a 0-d array on the device. Reading this norm waits for the
    device.
    """
    if not limit > 0:
        raise ValueError(f"the limit of the gradient norm must be positive, not {limit}")
    parameters = list(parameters)  # iterated over twice
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        return np.zeros(())
    norm = gradient_norm(parameters)
    xp = array_module(norm)
    factor = 1 / xp.maximum(norm / limit, 1)
    for g in gradients:
        g *= factor.astype(g.dtype)
    return norm.astype(gradients[0].dtype)


# name -> factor of the learning rate after `epoch` (possibly a fraction) of `epochs` epochs
SCHEDULES = {
    "constant": lambda epoch, epochs, decay: 1.0,
    "exponential": lambda epoch, epochs, decay: decay**epoch,
    "cosine": lambda epoch, epochs, decay: 0.5 * (1 + math.cos(math.pi * epoch / epochs)),
}
