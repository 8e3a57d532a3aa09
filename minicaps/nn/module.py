"""Module: an object that owns parameters, and other modules."""

import numpy as np

from minicaps.backend import array_module, to_host
from minicaps.tensor import Tensor


class Module:
    """Base of layers and models.

    Parameters are the attributes that are leaf tensors requiring a gradient (not what `forward`
    computes and keeps), children the attributes that are modules or lists of modules, nested or
    not; both are named by their attribute, in order of creation.
    """

    training = True

    def __call__(self, *args, **kwargs):
        return self.forward(*args, **kwargs)

    def children(self):
        """Yield (name, module) of the modules directly inside this one."""
        for name, value in vars(self).items():
            yield from _modules(name, value)

    def named_parameters(self, prefix=""):
        """Yield (dotted name, tensor) of every parameter, in order of creation."""
        for name, value in vars(self).items():
            if isinstance(value, Tensor) and value.requires_grad and value.node.leaf is not None:
                yield prefix + name, value
            for child_name, child in _modules(name, value):
                yield from child.named_parameters(f"{prefix}{child_name}.")

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

        The parameters are new tensors then: make the optimiser afterwards.
        """
        for name, p in list(self.named_parameters()):
            self._replace(name, _laid_out_like(p.data, p.data, device.xp))
        return self

    def astype(self, dtype):
        """Convert the parameters to another floating-point dtype; otherwise as `to`."""
        for name, p in list(self.named_parameters()):
            self._replace(name, p.data.astype(dtype))
        return self

    def _replace(self, name, data):
        """Put a new parameter of `data` in the place called `name`."""
        owner, *path = self, *name.split(".")
        for part in path[:-1]:
            owner = owner[int(part)] if isinstance(owner, list | tuple) else getattr(owner, part)
        setattr(owner, path[-1], Tensor(data, requires_grad=True))

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


def _modules(name, value):
    """Yield (dotted name, module) of `value`: a module, or a list of them, nested or not."""
    if isinstance(value, Module):
        yield name, value
    elif isinstance(value, list | tuple):
        for n, item in enumerate(value):
            yield from _modules(f"{name}.{n}", item)


def _laid_out_like(old, values, xp):
    """Copy `values` to `xp` in the memory order of `old`: the fast ops chose that order."""
    order = np.argsort([-s for s in old.strides], kind="stable").tolist()
    inverse = np.argsort(order).tolist()
    on_device = xp.asarray(np.array(to_host(values).transpose(order), order="C"))
    return on_device.transpose(inverse)
