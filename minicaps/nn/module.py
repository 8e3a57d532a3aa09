"""Module: an object that owns parameters, and other modules."""

import numpy as np

from minicaps.backend import array_module, to_host
from minicaps.tensor import Tensor


class Module:
    """Base of layers and models.

    Parameters are the attributes that are leaf tensors requiring a gradient (not what `forward`
    computes and keeps), children the attributes that are modules. Both may stand in lists, tuples
    and dictionaries, nested or not; they are named by their attribute, in order of creation.
    """

    training = True

    def __call__(self, *args, **kwargs):
        return self.forward(*args, **kwargs)

    def __repr__(self):
        """One line for each parameter: its name, shape and size."""
        lines = [f"  {name} {p.shape} {p.size:,}" for name, p in self.named_parameters()]
        total = f"{type(self).__name__}, {self.number_of_parameters():,} parameters"
        return "\n".join([total, *lines])

    def children(self):
        """Yield (name, module) of the modules directly inside this one."""
        for name, value in _parts(vars(self)):
            if isinstance(value, Module):
                yield name, value

    def named_parameters(self):
        """Yield (dotted name, tensor) of every parameter, in order of creation.

        A parameter that several layers share comes once, by its first name.
        """
        seen, names = set(), set()
        for name, p in self._all_parameters():
            if id(p) in seen:
                continue
            if name in names:
                raise ValueError(f"two parameters are called {name}: name their places apart")
            seen.add(id(p))
            names.add(name)
            yield name, p

    def _all_parameters(self, prefix=""):
        for name, value in _parts(vars(self)):
            if isinstance(value, Module):
                yield from value._all_parameters(f"{prefix}{name}.")
            elif value.is_leaf:
                yield prefix + name, value

    def parameters(self):
        """Return the parameters as a list."""
        return [p for _, p in self.named_parameters()]

    def number_of_parameters(self):
        """Return how many numbers are learned."""
        return sum(p.size for p in self.parameters())

    def zero_grad(self):
        """Forget the gradients."""
        for p in self.parameters():
            p.grad = None

    def train(self, training=True):
        """Switch this module and its children to training (or, with False, to evaluation)."""
        self.training = training
        for _, child in self.children():
            child.train(training)
        return self

    def eval(self):
        """Switch to evaluation."""
        return self.train(False)

    def to(self, device):
        """Move the parameters to a `Device`, keeping their memory layout; forgets gradients.

        Make the optimiser afterwards: it keeps its arrays where the parameters were.
        """
        for p in self.parameters():
            p.move(_laid_out_like(p.data, p.data, device.xp))
        return self

    def astype(self, dtype):
        """Convert the parameters to another floating-point dtype; otherwise as `to`."""
        for p in self.parameters():
            p.move(p.data.astype(dtype))
        return self

    def state_dict(self):
        """Return {name: NumPy copy} of the parameters."""
        return {name: np.array(to_host(p.data)) for name, p in self.named_parameters()}

    def load_state_dict(self, state):
        """Take the parameters from {name: array}; names, shapes and dtypes must all fit."""
        parameters = dict(self.named_parameters())
        if missing := sorted(parameters.keys() - state.keys()):
            raise ValueError(f"the state lacks {', '.join(missing)}")
        if unknown := sorted(state.keys() - parameters.keys()):
            raise ValueError(f"the state has {', '.join(unknown)}, which this model has not")
        for name, p in parameters.items():
            if state[name].shape != p.shape or state[name].dtype != p.dtype:
                raise ValueError(
                    f"{name} is {state[name].shape} {state[name].dtype} in the state and"
                    f" {p.shape} {p.dtype} in this model"
                )
        for name, p in parameters.items():
            p.data = _laid_out_like(p.data, state[name], array_module(p.data))


def _parts(named):
    """Yield (dotted name, part) of the modules and tensors in a dictionary, nested or not."""
    for name, value in named.items():
        if isinstance(value, list | tuple):
            value = dict(enumerate(value))
        if isinstance(value, Module | Tensor):
            yield str(name), value
        elif isinstance(value, dict):
            yield from ((f"{name}.{inner}", part) for inner, part in _parts(value))


def _laid_out_like(old, values, xp):
    """Copy `values` to `xp` in the memory order of `old`: the fast ops chose that order."""
    order = np.argsort([-s for s in old.strides], kind="stable").tolist()
    inverse = np.argsort(order).tolist()
    on_device = xp.asarray(np.array(to_host(values).transpose(order), order="C"))
    return on_device.transpose(inverse)
