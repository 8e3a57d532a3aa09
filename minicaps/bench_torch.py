"""CapsNet and routings by hand in PyTorch, eager, float32: what `minicaps.bench` measures against.

A twin takes the weights of a minicaps CapsNet, or the arrays that a routing routes, and computes
the same loss. Letters: B batch, I input capsules of N numbers, J output capsules of D.
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


def route_without_votes(u, weight):
    """Full gradient; s_j = Σ_i c_ij u_i W_ij as one product; weight (J, I, N, D)."""
    size = u.shape[1:]
    weight = weight.flatten(1, 2)  # (J, I·N, D)
    b = u.new_zeros(len(weight), *u.shape[:2])  # (J, B, I)
    for iteration in range(ITERATIONS):
        c = torch.softmax(b, 0)
        v = squash(torch.bmm((c.unsqueeze(3) * u).flatten(2), weight))
        if iteration < ITERATIONS - 1:
            b = b + (torch.bmm(v, weight.transpose(1, 2)).unflatten(2, size) * u).sum(3)
    return v.transpose(0, 1)


# name -> memory format of images and kernels, routing, order of the axes (I, J, N, D) in its weight
VARIANTS = {
    "channels first, matmul": (torch.contiguous_format, route_matmul, (0, 2, 1, 3)),
    "channels first, einsum": (torch.contiguous_format, route_einsum, (0, 1, 2, 3)),
    "channels last, matmul": (torch.channels_last, route_matmul, (0, 2, 1, 3)),
    "channels last, einsum": (torch.channels_last, route_einsum, (0, 1, 2, 3)),
}
POPULAR = {"popular": (torch.contiguous_format, route_popular, (1, 0, 3, 2))}


def by_matmul(x, y, axis):
    """Σ over an axis, 2 or 3, of x (B, J, ·, ·) times y (B, J, ·)."""
    return (y.unsqueeze(2) @ x).squeeze(2) if axis == 2 else (x @ y.unsqueeze(3)).squeeze(3)


def by_einsum(x, y, axis):
    return torch.einsum("bjxy,bjx->bjy" if axis == 2 else "bjxy,bjy->bjx", x, y)


def by_products(x, y, axis):
    return (x * y.unsqueeze(5 - axis)).sum(axis)


class Deviations:
    """Gaussians of votes by (V − μ)². axis: of the children, 2 or 3; contract: as above."""

    def __init__(self, votes, axis, contract):
        self.votes, self.axis, self.contract = votes, axis, contract

    def fit(self, share):
        """Means and variances (B, J, D) of children with shares (B, J, I)."""
        mean = self.contract(self.votes, share, self.axis)
        self.square = (self.votes - mean.unsqueeze(self.axis)).square()
        return mean, self.contract(self.square, share, self.axis)

    def distance(self, mean, variance):
        """Σ_d (V − μ)²/σ², (B, J, I)."""
        return self.contract(self.square, 1 / variance, 5 - self.axis)


class Moments:
    """The same by V and V² side by side; it loses digits where |μ| is far above σ."""

    def __init__(self, votes, axis, contract):
        self.both = torch.cat([votes, votes.square()], 5 - axis)
        self.axis, self.contract = axis, contract

    def fit(self, share):
        mean, square = self.contract(self.both, share, self.axis).chunk(2, 2)
        return mean, square - mean.square()

    def distance(self, mean, variance):
        factors = torch.cat([-2 * mean / variance, 1 / variance], 2)
        constant = (mean.square() / variance).sum(2, keepdim=True)
        return constant + self.contract(self.both, factors, 5 - self.axis)


def em(votes, activations, beta_u, beta_a, *, axis, contract, gaussians=Deviations):
    """All steps of EM routing; votes (B, J, I, D) or (B, J, D, I), their children along `axis`."""
    gaussians = gaussians(votes, axis, contract)
    R = torch.full_like(beta_u, 1 / len(beta_u)).unsqueeze(1)
    for iteration in range(ITERATIONS):
        w = R * activations.unsqueeze(1)  # (B, J, I)
        total = w.sum(2)
        mean, variance = gaussians.fit(w / total.unsqueeze(2))
        variance = variance.clamp_min(1e-4)
        log_scale = 0.5 * variance.log().sum(2)
        λ = 0.01 * (1 - 0.95 ** (iteration + 1))
        log_a = F.logsigmoid(λ * (beta_a - (beta_u + log_scale) * total))
        if iteration < ITERATIONS - 1:
            log_p = (log_a - log_scale).unsqueeze(2) - 0.5 * gaussians.distance(mean, variance)
            R = torch.softmax(log_p, 1)
    return mean, log_a.exp()


def matrix_em(weight, poses, *others, axis, **options):
    """EM routing of the votes that weight (I, 4, J, 4) makes of poses (B, I, 4, 4)."""
    i, n, j, _ = weight.shape
    stacked = poses.transpose(0, 1).reshape(i, -1, n)
    votes = torch.bmm(stacked, weight.view(i, n, j * n)).view(i, len(poses), n, j, n)
    order = (1, 3, 0, 2, 4) if axis == 2 else (1, 3, 2, 4, 0)
    votes = votes.permute(order).contiguous()
    return em(votes.flatten(5 - axis, 6 - axis), *others, axis=axis, **options)


def _dense(route, axes):
    return (lambda weight, u: (route(u, weight),)), axes


_EM = {
    "matmul": {"axis": 2, "contract": by_matmul},
    "einsum": {"axis": 2, "contract": by_einsum},
    "products": {"axis": 2, "contract": by_products},
    "products, children last": {"axis": 3, "contract": by_products},
    "matmul, children last": {"axis": 3, "contract": by_matmul},
    "matmul, moments": {"axis": 2, "contract": by_matmul, "gaussians": Moments},
}
# kind of task -> name -> routing, order of the axes in memory of the first array that it takes
ROUTINGS = {
    "em": {
        name: (functools.partial(em, **way), (0, 2, 1, 3) if way["axis"] == 2 else (0, 2, 3, 1))
        for name, way in _EM.items()
    },
    "matrix em": {
        name: (functools.partial(matrix_em, **way), (0, 2, 1, 3)) for name, way in _EM.items()
    },
    "agreement": {
        "matmul": _dense(route_matmul, (0, 2, 1, 3)),
        "einsum": _dense(route_einsum, (0, 1, 2, 3)),
        "without votes": _dense(route_without_votes, (1, 0, 2, 3)),
    },
}
POPULAR_ROUTINGS = {"agreement": {"popular": _dense(route_popular, (1, 0, 3, 2))}}


def routing_steps(variants, task):
    """Return {"torch, " + name: function that does a `minicaps.bench_routing.Task`}."""
    return {f"torch, {name}": _routing_step(*variant, task) for name, variant in variants.items()}


def _routing_step(route, axes, task):
    first, *rest = task.arrays
    arrays = [np.ascontiguousarray(first.transpose(axes)), *rest]
    tensors = [torch.from_numpy(x).requires_grad_() for x in arrays]
    cotangents = [torch.from_numpy(x) for x in task.cotangents]

    def step():
        loss = sum((x * g).sum() for x, g in zip(route(*tensors), cotangents, strict=True))
        gradients = [g.numpy() for g in torch.autograd.grad(loss, tensors)]
        gradients[0] = gradients[0].transpose(np.argsort(axes))
        return loss.item(), gradients

    return step


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
