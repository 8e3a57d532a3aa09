"""The base class Module of objects that own parameters and other modules."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Self

import numpy as np
from numpy.typing import DTypeLike

from minicaps.backend import Device, array_module, to_host
from minicaps.errors import ShowsCall
from minicaps.tensor import Tensor

__all__ = ["Module"]

_watchers = ContextVar("watchers", default=())  # called after every forward


@contextmanager
def watching(watcher):
    """Call watcher(module, outputs) after every `forward` in this context, inner modules first."""
    token = _watchers.set((*_watchers.get(), watcher))
    try:
        yield
    finally:
        _watchers.reset(token)


class Module(ShowsCall):
    """Base class of layers and models.

    All attributes that are leaf tensors (created with requires_grad=True) are parameters, and all
    attributes that are modules are children. Results stored by `forward` are not leaves and
    therefore not parameters. Nested lists, tuples and dictionaries are searched as well. Parameters
    and children are named after their attributes and listed in order of creation. The attribute
    `buffers` lists the names of arrays that belong to the state but are not learned.
    """

    training = True
    buffers = ()

    def __call__(self, *args, **kwargs):
        outputs = self.forward(*args, **kwargs)
        for watcher in _watchers.get():
            watcher(self, outputs)
        return outputs

    def __repr__(self):
        """Return a summary with the name, shape and size of each parameter."""
        lines = [f"  {name} {p.shape} {p.size:,}" for name, p in self.named_parameters()]
        total = f"{type(self).__name__}, {self.number_of_parameters():,} parameters"
        return "\n".join([total, *lines])

    def children(self) -> Iterator[tuple[str, "Module"]]:
        """Yield (name, module) for the direct children of this module."""
        for name, value in _parts(vars(self)):
            if isinstance(value, Module):
                yield name, value

    def modules(self, prefix: str = "") -> Iterator[tuple[str, "Module"]]:
        """Yield (name prefix, module) for this module and every occurrence of its submodules."""
        yield prefix, self
        for name, child in self.children():
            yield from child.modules(f"{prefix}{name}.")

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Yield (dotted name, tensor) for every parameter, in order of creation.

        A parameter shared by several layers is yielded only once, under its first name.
        """
        seen, names = set(), set()
        for name, p in self._all_parameters():
            if id(p) in seen:
                continue
            if name in names:
                raise ValueError(f"two parameters are called {name}: rename one of them")
            seen.add(id(p))
            names.add(name)
            yield name, p

    def _all_parameters(self, prefix=""):
        for name, value in _parts(vars(self)):
            if isinstance(value, Module):
                yield from value._all_parameters(f"{prefix}{name}.")
            elif value.is_leaf:
                yield prefix + name, value

    def parameters(self) -> list[Tensor]:
        """Return the parameters as a list."""
        return [p for _, p in self.named_parameters()]

    def number_of_parameters(self) -> int:
        """Return the number of learned values."""
        return sum(p.size for p in self.parameters())

    def zero_grad(self) -> None:
        """Discard the gradients of all parameters."""
        for p in self.parameters():
            p.grad = None

    def train(self, training: bool = True) -> Self:
        """Set this module and its submodules to training mode.

        If `training` is False, evaluation mode is set instead.
        """
        for _, module in self.modules():
            module.training = training
        return self

    def eval(self) -> Self:
        """Set this module and its submodules to evaluation mode."""
        return self.train(False)

    def reseed(self, *numbers: int) -> None:
        """Replace each layer's `rng` with a generator seeded with `numbers` and the layer index."""
        for place, (_, module) in enumerate(self.modules()):
            if hasattr(module, "rng"):
                module.rng = np.random.default_rng([*numbers, place])

    def to(self, device: Device) -> Self:
        """Move parameters and buffers to a `Device`, keep their layout, and discard gradients.

        Create the optimizer after moving the module, because the arrays of an optimizer are not
        moved.
        """
        return self._convert(lambda array: _laid_out_like(array, array, device.xp))

    def astype(self, dtype: DTypeLike) -> Self:
        """Convert parameters and buffers to a floating-point dtype, and discard gradients."""
        return self._convert(lambda array: array.astype(dtype))

    def _convert(self, change):
        for p in self.parameters():
            p.move(change(p.data))
        for _, owner, attribute in self._named_buffers():
            setattr(owner, attribute, change(getattr(owner, attribute)))
        return self

    def _named_buffers(self):
        """Yield (dotted name, module, attribute) for every buffer."""
        for prefix, module in self.modules():
            yield from ((prefix + name, module, name) for name in module.buffers)

    def _state(self):
        """Return {name: array} with the parameters first and then the buffers."""
        state = {name: p.data for name, p in self.named_parameters()}
        buffers = {name: getattr(owner, key) for name, owner, key in self._named_buffers()}
        return state | buffers

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return {name: NumPy copy} for the parameters and buffers."""
        return {name: np.array(to_host(array)) for name, array in self._state().items()}

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        """Load parameters and buffers from {name: array}; names, shapes and dtypes must match."""
        own = self._state()
        if missing := sorted(own.keys() - state.keys()):
            raise ValueError(f"the state is missing {', '.join(missing)}")
        if unknown := sorted(state.keys() - own.keys()):
            raise ValueError(f"the state has {', '.join(unknown)}, which this model lacks")
        for name, array in own.items():
            saved, here = (f"{a.shape} {a.dtype}" for a in (state[name], array))
            if saved != here:
                raise ValueError(f"{name} is {saved} in the state but {here} in this model")
        new = {name: _laid_out_like(a, state[name], array_module(a)) for name, a in own.items()}
        for name, p in self.named_parameters():
            p.data = new[name]
        for name, owner, attribute in self._named_buffers():
            setattr(owner, attribute, new[name])


def _parts(named):
    """Yield (dotted name, part) for the modules and tensors in a possibly nested dictionary."""
    for name, value in named.items():
        if isinstance(value, list | tuple):
            value = dict(enumerate(value))
        if isinstance(value, Module | Tensor):
            yield str(name), value
        elif isinstance(value, dict):
            yield from ((f"{name}.{inner}", part) for inner, part in _parts(value))


def _laid_out_like(old, values, xp):
    """Copy `values` to an `xp` array with the memory layout of `old`, which suits the fast ops."""
    order = np.argsort([-s for s in old.strides], kind="stable").tolist()
    inverse = np.argsort(order).tolist()
    on_device = xp.asarray(np.array(to_host(values).transpose(order), order="C"))
    return on_device.transpose(inverse)
