"""Handwritten implementation of CapsNet in PyTorch, float32: the reference for `minicaps.bench`.

A twin takes the weights of a minicaps CapsNet and computes the same loss and lengths.
"""

import functools
import time
import warnings

import numpy as np
import torch
import torch.nn.functional as F

from minicaps.bench.twins_routing import (
    route_einsum,
    route_matmul,
    route_popular,
    route_without_votes,
    squash,
)

FORMATS = {"channels first": torch.contiguous_format, "channels last": torch.channels_last}
# routing, and the order of the axes (I, J, N, D) in its weight
ROUTES = {
    "matmul": (route_matmul, (0, 2, 1, 3)),
    "einsum": (route_einsum, (0, 1, 2, 3)),
    "without votes": (route_without_votes, (1, 0, 2, 3)),
}
# name -> memory format of images and kernels, routing, order of the axes in its weight
VARIANTS = {
    f"{place}, {name}": (memory_format, *route)
    for place, memory_format in FORMATS.items()
    for name, route in ROUTES.items()
}
POPULAR = {"popular": (torch.contiguous_format, route_popular, (1, 0, 3, 2))}


def steps(variants, case, material):
    """Return {"torch, " + name: step function of a new twin} for a `cases.Case`."""
    return {
        f"torch, {name}": Twin(material[0], variant).step_of(case, *material[1:])
        for name, variant in variants.items()
    }


def maker(name):
    """Return a function that creates the twin's step function from a case and its material.

    name: a key of `steps`. Calling this function also triggers the lazy loading that PyTorch
    performs on first use.
    """
    number, variant = torch.zeros(1, requires_grad=True), _named(name)
    number.sum().backward()
    torch.optim.Adam([number], fused=True).step()
    return lambda case, model, *batch: Twin(model, variant).step_of(case, *batch)


def _named(name):
    return {**VARIANTS, **POPULAR}[name.removeprefix("torch, ")]


def compiled(name, case, material):
    """Compile a twin with `torch.compile`; return its step function and the compilation time.

    The compilation time is the duration of the first call in seconds. PyTorch raises an error if
    the compilation fails, for example without a C++ compiler.
    """
    torch.compiler.reset()  # earlier compilations count toward a limit
    twin = Twin(material[0], _named(name))
    part = "loss" if case.train else "classify"
    setattr(twin, part, torch.compile(getattr(twin, part), dynamic=False))
    step, start = twin.step_of(case, *material[1:]), time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice about GPUs
        step()
    return step, time.perf_counter() - start


def multiply(a, b, out):
    """Compute a @ b into `out` for `count.floor_step`; all three are NumPy arrays."""
    torch.mm(torch.from_numpy(a), torch.from_numpy(b), out=torch.from_numpy(out))


class Twin:
    """A PyTorch CapsNet with the weights of `model`, a minicaps CapsNet with a decoder.

    variant: a value of VARIANTS or POPULAR.
    """

    def __init__(self, model, variant):
        self.format, self.route, self.axes = variant
        self.strides = [layer.stride for layer in (*model.convolutions, model.primary.conv)]
        self.capsule_size = model.primary.size
        self.layers = len(model.decoder.layers)
        self.parameters = {name: self._take(name, a) for name, a in model.state_dict().items()}
        self.optimizer = torch.optim.Adam(self.parameters.values(), lr=1e-3, fused=True)

    def _take(self, name, array):
        tensor = torch.from_numpy(array)
        if name == "classes.weight":
            tensor = tensor.permute(self.axes)
        kernel = tensor.ndim == 4 and name != "classes.weight"
        format = self.format if kernel else torch.contiguous_format
        return tensor.clone(memory_format=format).requires_grad_()

    def step_of(self, case, images, labels):
        """Return the step function of this twin for a batch of NumPy arrays."""
        images, labels = torch.from_numpy(images), torch.from_numpy(labels)
        if case.train:
            return functools.partial(self.step, images, labels)
        return functools.partial(self.infer, images)

    def classify(self, images):
        """Return the class capsules (B, J, D) and their lengths (B, J) for images (B, C, H, W)."""
        p = self.parameters
        x = images.contiguous(memory_format=self.format)
        *convolutions, last = self.strides
        for n, stride in enumerate(convolutions):
            name = f"convolutions.{n}"
            x = F.relu(F.conv2d(x, p[f"{name}.weight"], p[f"{name}.bias"], stride))
        x = F.conv2d(x, p["primary.conv.weight"], p["primary.conv.bias"], last)
        u = squash(x.permute(0, 2, 3, 1).reshape(len(images), -1, self.capsule_size))
        v = self.route(u, p["classes.weight"])
        return v, torch.linalg.vector_norm(v, dim=-1)

    def loss(self, images, labels):
        """Return the total loss for images (B, C, H, W) and labels (B,).

        The total is the margin loss plus the weighted reconstruction loss.
        """
        p, batch = self.parameters, len(images)
        v, lengths = self.classify(images)
        present = F.one_hot(labels, v.shape[1]).to(v.dtype)
        missing, extra = F.relu(0.9 - lengths), F.relu(lengths - 0.1)
        margin = (present * missing**2 + 0.5 * (1 - present) * extra**2).sum() / batch

        x = (v * present.unsqueeze(-1)).reshape(batch, -1)
        for n in range(self.layers):
            x = torch.addmm(p[f"decoder.layers.{n}.bias"], x, p[f"decoder.layers.{n}.weight"])
            x = torch.sigmoid(x) if n == self.layers - 1 else F.relu(x)
        difference = x - images.reshape(batch, -1)
        return margin + 0.0005 * (difference * difference).sum() / batch

    def step(self, images, labels):
        """Perform one training step and return the loss computed before the update."""
        self.optimizer.zero_grad()
        loss = self.loss(images, labels)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def infer(self, images):
        """Return the lengths (B, J) of the class capsules."""
        with torch.inference_mode():
            return self.classify(images)[1].numpy()

    def gradients(self):
        """Return {name: gradient of the last step}, in the shapes of minicaps."""
        found = {name: p.grad.numpy() for name, p in self.parameters.items()}
        found["classes.weight"] = found["classes.weight"].transpose(np.argsort(self.axes))
        return found
