"""Optimisers, gradient clipping, and learning-rate schedules.

An optimiser updates the parameters in place and never waits for the device.
"""

import math

import numpy as np

from minicaps.backend import array_module, to_host


class Optimizer:
    """Base: holds the parameters by name and one array of each `slot` for each parameter.

    parameters: iterable of (name, tensor), such as `model.named_parameters()`.
    learning_rate: may be changed between steps. weight_decay: decoupled from the gradient, as
    in AdamW (Loshchilov and Hutter 2019): p ← p − lr · weight_decay · p.
    """

    slots = ()

    def __init__(self, parameters, learning_rate, weight_decay=0.0):
        self.parameters = dict(parameters)
        self.learning_rate, self.weight_decay = learning_rate, weight_decay
        self.steps = 0
        self.state = {
            slot: {
                name: array_module(p.data).zeros_like(p.data) for name, p in self.parameters.items()
            }
            for slot in self.slots
        }

    def step(self):
        """Update every parameter that has a gradient."""
        self.steps += 1
        rate = float(self.learning_rate)  # np.float64 would turn float32 into float64
        for name, p in self.parameters.items():
            if p.grad is None:
                continue
            data = p.data
            if self.weight_decay:
                data *= 1 - rate * self.weight_decay
            self._update(data, p.grad, rate, *(self.state[slot][name] for slot in self.slots))
            p.data = data  # tells the graph that the value has changed

    def state_dict(self):
        """Return {"steps": n, "slot/name": NumPy copy}."""
        arrays = {
            f"{slot}/{name}": np.array(to_host(a))
            for slot, named in self.state.items()
            for name, a in named.items()
        }
        return {"steps": self.steps, **arrays}

    def load_state_dict(self, state):
        """Take what `state_dict` gave; names, shapes and dtypes must all fit."""
        expected = {f"{slot}/{name}" for slot in self.slots for name in self.parameters} | {"steps"}
        if expected != state.keys():
            wrong = ", ".join(sorted(expected ^ state.keys()))
            raise ValueError(f"the optimiser's state does not fit: {wrong}")
        pairs = [
            (f"{slot}/{name}", array)
            for slot, named in self.state.items()
            for name, array in named.items()
        ]
        for key, array in pairs:
            saved = state[key]
            if saved.shape != array.shape or saved.dtype != array.dtype:
                raise ValueError(
                    f"{key} is {saved.shape} {saved.dtype} in the state and"
                    f" {array.shape} {array.dtype} in this optimiser"
                )
        for key, array in pairs:
            array[...] = array_module(array).asarray(state[key])
        self.steps = int(state["steps"])


class SGD(Optimizer):
    """m ← μ m + g; p ← p − lr m (momentum μ; 0 is plain gradient descent)."""

    def __init__(self, parameters, learning_rate=0.1, *, momentum=0.9, weight_decay=0.0):
        self.momentum = momentum
        self.slots = ("momentum",) if momentum else ()
        super().__init__(parameters, learning_rate, weight_decay)

    def _update(self, p, g, rate, m=None):
        if m is not None:
            m *= self.momentum
            m += g
            g = m
        p -= rate * g


class Adam(Optimizer):
    """Adam (Kingma and Ba 2015) with decoupled weight decay.

    m ← β₁ m + (1−β₁) g;  v ← β₂ v + (1−β₂) g²;  p ← p − lr · m̂ / (√v̂ + ε), where the hats
    divide by 1−βᵗ.
    """

    slots = ("mean", "square")

    def __init__(
        self, parameters, learning_rate=1e-3, *, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0
    ):
        self.betas, self.eps = betas, eps
        super().__init__(parameters, learning_rate, weight_decay)

    def _update(self, p, g, rate, m, v):
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
        scratch /= math.sqrt(1 - beta2**self.steps)
        scratch += self.eps
        xp.divide(m, scratch, out=scratch)
        scratch *= rate / (1 - beta1**self.steps)
        p -= scratch


def clip_gradient_norm(parameters, limit):
    """Shorten all gradients together so that their common norm is at most `limit`.

    Returns the norm before, a 0-d array on the device (reading it waits for the device).
    """
    if not limit > 0:
        raise ValueError(f"the limit of the gradient's norm must be positive, not {limit}")
    gradients = [p.grad for p in parameters if p.grad is not None]
    xp = array_module(*gradients)
    norm = xp.sqrt(sum(xp.linalg.norm(g) ** 2 for g in gradients))
    factor = limit / xp.maximum(norm, limit)
    for g in gradients:
        g *= factor
    return norm


# name -> factor of the learning rate after `epoch` epochs (a fraction within one) of `epochs`
SCHEDULES = {
    "constant": lambda epoch, epochs, decay: 1.0,
    "exponential": lambda epoch, epochs, decay: decay**epoch,
    "cosine": lambda epoch, epochs, decay: 0.5 * (1 + math.cos(math.pi * epoch / epochs)),
}
