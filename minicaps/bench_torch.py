"""CapsNet by hand in PyTorch, eager and float32: what `minicaps.bench` measures against.

A twin takes the weights of a minicaps CapsNet and computes the same loss. Letters: B batch,
I input capsules of N numbers, J output capsules of D.
"""

import functools

import numpy as np
import torch
import torch.nn.functional as F

ITERATIONS = 3


def squash(s):
    squared = (s * s).sum(-1, keepdim=True)
    return s * (squared.clamp_min(1e-24).sqrt() / (1 + squared))


def route_matmul(u, weight):
    """Full gradient, all of it in matrix products: the votes lie as (B, J, I, D)."""
    inputs, size, outputs, _ = weight.shape  # (I, N, J, D)
    votes = torch.bmm(u.transpose(0, 1), weight.view(inputs, size, -1))  # (I, B, J·D)
    votes = votes.view(inputs, len(u), outputs, -1).permute(1, 2, 0, 3).contiguous()
    b = votes.new_zeros(votes.shape[:3])
    for iteration in range(ITERATIONS):
        c = torch.softmax(b, 1)
        v = squash(torch.matmul(c.unsqueeze(2), votes).squeeze(2))
        if iteration < ITERATIONS - 1:
            b = b + torch.matmul(votes, v.unsqueeze(-1)).squeeze(-1)
    return v


def route_einsum(u, weight):
    """Full gradient, as the formulas are written; weight (I, J, N, D)."""
    votes = torch.einsum("bin,ijnd->bjid", u, weight)
    b = votes.new_zeros(votes.shape[:3])
    for iteration in range(ITERATIONS):
        c = torch.softmax(b, 1)
        v = squash(torch.einsum("bji,bjid->bjd", c, votes))
        if iteration < ITERATIONS - 1:
            b = b + torch.einsum("bjid,bjd->bji", votes, v)
    return v


def route_popular(u, weight):
    """Couplings as constants, by broadcast multiplications: how most repositories write it."""
    votes = torch.matmul(weight, u[:, None, :, :, None]).squeeze(-1)  # weight (J, I, D, N)
    seen = votes.detach()
    b = votes.new_zeros(votes.shape[:3])
    for iteration in range(ITERATIONS):
        c = torch.softmax(b, 1).unsqueeze(-1)
        if iteration < ITERATIONS - 1:
            v = squash((c * seen).sum(-2, keepdim=True))
            b = b + (v * seen).sum(-1)
    return squash((c * votes).sum(-2))


# name -> memory format of images and kernels, routing, order of the axes (I, J, N, D) in its weight
VARIANTS = {
    "channels first, matmul": (torch.contiguous_format, route_matmul, (0, 2, 1, 3)),
    "channels first, einsum": (torch.contiguous_format, route_einsum, (0, 1, 2, 3)),
    "channels last, matmul": (torch.channels_last, route_matmul, (0, 2, 1, 3)),
    "channels last, einsum": (torch.channels_last, route_einsum, (0, 1, 2, 3)),
}
POPULAR = {"popular": (torch.contiguous_format, route_popular, (1, 0, 3, 2))}


def versions():
    """What the report says about this side."""
    return {"torch": torch.__version__, "torch_threads": torch.get_num_threads()}


def training_steps(variants, model, images, labels):
    """Return {"torch, " + name: function that trains a new twin one step on the batch}."""
    batch = torch.from_numpy(images), torch.from_numpy(labels)
    return {
        f"torch, {name}": functools.partial(Twin(model, variant).step, *batch)
        for name, variant in variants.items()
    }


class Twin:
    """A PyTorch CapsNet with the weights of `model`, a minicaps CapsNet with decoder.

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

    def loss(self, images, labels):
        """Margin loss plus reconstruction loss of images (B, C, H, W) and labels (B,), tensors."""
        p, batch = self.parameters, len(images)
        x = images.contiguous(memory_format=self.format)
        *convolutions, last = self.strides
        for n, stride in enumerate(convolutions):
            name = f"convolutions.{n}"
            x = F.relu(F.conv2d(x, p[f"{name}.weight"], p[f"{name}.bias"], stride))
        x = F.conv2d(x, p["primary.conv.weight"], p["primary.conv.bias"], last)
        u = squash(x.permute(0, 2, 3, 1).reshape(batch, -1, self.capsule_size))
        v = self.route(u, p["classes.weight"])  # (B, J, D)

        lengths = torch.linalg.vector_norm(v, dim=-1)
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
        """One training step; returns the loss before it."""
        self.optimizer.zero_grad()
        loss = self.loss(images, labels)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def gradients(self):
        """Return {name: gradient of the last step}, in the shapes of minicaps."""
        found = {name: p.grad.numpy() for name, p in self.parameters.items()}
        found["classes.weight"] = found["classes.weight"].transpose(np.argsort(self.axes))
        return found
