"""Handwritten routing and capsule layers in eager PyTorch, float32, for `minicaps.bench`.

Each twin operates on the arrays of a task defined in `tasks`.

Notation: B is the number of samples or the number of windows in all samples. There are I children
of N numbers and J parents of D numbers.
"""

import functools

import numpy as np
import torch
import torch.nn.functional as F

ITERATIONS = 3


def squash(s):
    squared = (s * s).sum(-1, keepdim=True)
    return s * (squared.clamp_min(1e-24).sqrt() / (1 + squared))


class Samples:
    """Couplings that divide each child among the J parents in its sample."""

    gather = staticmethod(lambda children: children)
    couple = staticmethod(torch.softmax)

    def start(self, children, parents):
        """Multiply the children (B, I, …) by their couplings in the first iteration."""
        return children / parents


class Windows:
    """Couplings that divide each child among the parents of all windows that contain the child.

    windows: a `minicaps.routing.couplings.Windows`. Sums over positions are computed as products
    with a matrix of zeros and ones.
    """

    def __init__(self, windows):
        (h, w), (p, q), k, step = windows.size, windows.grid, windows.kernel, windows.stride
        self.number, self.types, self.places = p * q, windows.types, k * k
        rows = step * np.arange(p)[:, None, None, None] + np.arange(k)[:, None]
        columns = step * np.arange(q)[:, None, None] + np.arange(k)
        seen = (w * rows + columns).reshape(-1)  # grid position of each of the P·Q·K·K places
        self.held = torch.from_numpy(np.eye(h * w, dtype=np.float32)[seen])
        self.shared = self.held @ self.held.T  # 1 where two places share a position
        order = self.shared.argsort(1, descending=True)[:, : int(self.shared.sum(1).max())]
        own = torch.arange(len(seen)).unsqueeze(1)
        self.same = torch.where(self.shared.gather(1, order) > 0, order, own)

    def gather(self, grid):
        """Gather the children of every window: (B, H, W, T, …) -> (B·P·Q, K·K·T, …)."""
        b, h, w, t, *rest = grid.shape
        return (self.held @ grid.reshape(b, h * w, -1)).view(-1, self.places * t, *rest)

    def couple(self, logits, axis):
        """Compute couplings from logits with the parents along `axis`.

        The other axes of the logits are B·P·Q and I.
        """
        shape = -1, len(self.shared), self.types
        with torch.no_grad():
            top = logits.amax(axis)
            top = top.view(shape)[:, self.same].amax(2).view(top.shape)
        powers = torch.exp(logits - top.unsqueeze(axis))
        total = powers.sum(axis)
        total = (self.shared @ total.view(shape)).view(total.shape)
        return powers / total.unsqueeze(axis)

    def start(self, children, parents):
        share = 1 / (parents * self.shared.sum(1))
        share = share.repeat_interleave(self.types).view(self.number, -1)
        share = share.view(*share.shape, *[1] * (children.ndim - 2))
        return (children.view(-1, self.number, *children.shape[1:]) * share).view(children.shape)


SAMPLES = Samples()


def _votes(u, weight, order):
    """Compute votes (I, B, J, D) from u (B, I, N) and weight (I, N, J, D), and permute the axes."""
    i, n, *parents = weight.shape
    votes = torch.bmm(u.transpose(0, 1), weight.view(i, n, -1))
    return votes.view(i, len(u), *parents).permute(order).contiguous()


def route_matmul(u, weight, among=SAMPLES):
    """Route by matrix products with the full gradient, using no votes in the first iteration."""
    i, n, j, d = weight.shape
    votes = _votes(u, weight, (1, 2, 0, 3))  # (B, J, I, D)
    s = among.start(u, j).flatten(1) @ weight.view(i * n, j * d)
    v, b = squash(s.view(-1, j, d)), 0
    for _ in range(ITERATIONS - 1):
        b = b + (votes @ v.unsqueeze(3)).squeeze(3)
        v = squash((among.couple(b, 1).unsqueeze(2) @ votes).squeeze(2))
    return v


def route_einsum(u, weight, among=SAMPLES):
    """Route with the full gradient, using einsum to translate the equations directly.

    weight: (I, J, N, D).
    """
    votes = torch.einsum("bin,ijnd->bjid", u, weight)
    b = votes.new_zeros(votes.shape[:3])
    for iteration in range(ITERATIONS):
        v = squash(torch.einsum("bji,bjid->bjd", among.couple(b, 1), votes))
        if iteration < ITERATIONS - 1:
            b = b + torch.einsum("bjid,bjd->bji", votes, v)
    return v


def route_popular(u, weight):
    """Route by broadcast products with constant couplings, as is common in public repositories."""
    votes = torch.matmul(weight, u[:, None, :, :, None]).squeeze(-1)  # weight (J, I, D, N)
    seen = votes.detach()
    b = votes.new_zeros(votes.shape[:3])
    for iteration in range(ITERATIONS):
        c = torch.softmax(b, 1).unsqueeze(-1)
        if iteration < ITERATIONS - 1:
            v = squash((c * seen).sum(-2, keepdim=True))
            b = b + (v * seen).sum(-1)
    return squash((c * votes).sum(-2))


def route_without_votes(u, weight, among=SAMPLES):
    """Route with the full gradient, computing s_j = Σ_i c_ij u_i W_ij as a single product.

    weight: (J, I, N, D).
    """
    size = u.shape[1:]
    weight = weight.flatten(1, 2)  # (J, I·N, D)
    v, b = squash(among.start(u, len(weight)).flatten(1) @ weight), 0  # (J, B, D)
    for _ in range(ITERATIONS - 1):
        b = b + ((v @ weight.transpose(1, 2)).unflatten(2, size) * u).sum(3)  # (J, B, I)
        v = squash((among.couple(b, 0).unsqueeze(3) * u).flatten(2) @ weight)
    return v.transpose(0, 1)


def by_matmul(x, y, axis):
    """Multiply x (B, J, ·, ·) by y (B, J, ·), and sum the product over axis 2 or 3."""
    return (y.unsqueeze(2) @ x).squeeze(2) if axis == 2 else (x @ y.unsqueeze(3)).squeeze(3)


def by_einsum(x, y, axis):
    return torch.einsum("bjxy,bjx->bjy" if axis == 2 else "bjxy,bjy->bjx", x, y)


def by_products(x, y, axis):
    return (x * y.unsqueeze(5 - axis)).sum(axis)


class Deviations:
    """Gaussians fitted to the votes, with variances computed from (V − μ)².

    axis: axis of the children, 2 or 3. contract: `by_matmul`, `by_einsum` or `by_products`.
    """

    def __init__(self, votes, axis, contract):
        self.votes, self.axis, self.contract = votes, axis, contract

    def fit(self, share):
        """Return the means and variances (B, J, D) of the votes, weighted by `share` (B, J, I)."""
        mean = self.contract(self.votes, share, self.axis)
        self.square = (self.votes - mean.unsqueeze(self.axis)).square()
        return mean, self.contract(self.square, share, self.axis)

    def distance(self, mean, variance):
        """Return Σ_d (V − μ)²/σ², (B, J, I)."""
        return self.contract(self.square, 1 / variance, 5 - self.axis)


class Moments:
    """Gaussians fitted to the votes, computed from V and V² together; inaccurate if |μ| ≫ σ."""

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


def em(votes, activations, beta_u, beta_a, among, *, axis, contract, gaussians=Deviations):
    """Route votes (B, J, I, D) or (B, J, D, I) by EM, with the children along `axis`."""
    gaussians = gaussians(votes, axis, contract)
    j = len(beta_u)
    w = among.start(activations, j).unsqueeze(1).expand(-1, j, -1)  # (B, J, I)
    for iteration in range(ITERATIONS):
        total = w.sum(2)
        mean, variance = gaussians.fit(w / total.unsqueeze(2))
        variance = variance.clamp_min(1e-4)
        log_scale = 0.5 * variance.log().sum(2)
        λ = 0.01 * (1 - 0.95 ** (iteration + 1))
        log_a = F.logsigmoid(λ * (beta_a - (beta_u + log_scale) * total))
        if iteration < ITERATIONS - 1:
            log_p = (log_a - log_scale).unsqueeze(2) - 0.5 * gaussians.distance(mean, variance)
            w = among.couple(log_p, 1) * activations.unsqueeze(1)
    return mean, log_a.exp()


def matrix_capsules(weight, beta_u, beta_a, poses, activations, among, *, axis, **options):
    """Compute votes from a grid of poses and weight (I, 4, J, 4), and route them by EM."""
    poses, activations = among.gather(poses), among.gather(activations)
    b, i, n, _ = poses.shape
    j = weight.shape[2]
    stacked = poses.transpose(0, 1).reshape(i, -1, n)
    votes = torch.bmm(stacked, weight.view(i, n, j * n)).view(i, b, n, j, n)
    order = (1, 3, 0, 2, 4) if axis == 2 else (1, 3, 2, 4, 0)
    votes = votes.permute(order).contiguous().flatten(5 - axis, 6 - axis)
    return em(votes, activations, beta_u, beta_a, among, axis=axis, **options)


def _capsules(route, axes):
    """Return a capsule layer that uses routing by agreement, and the axis order of its weights."""
    return (lambda weight, u, among: (route(among.gather(u), weight, among),)), axes


def _popular(weight, u, among):
    return (route_popular(u, weight),)


_EM = {
    "matmul": {"axis": 2, "contract": by_matmul},
    "einsum": {"axis": 2, "contract": by_einsum},
    "products": {"axis": 2, "contract": by_products},
    "products, children last": {"axis": 3, "contract": by_products},
    "matmul, children last": {"axis": 3, "contract": by_matmul},
    "matmul, moments": {"axis": 2, "contract": by_matmul, "gaussians": Moments},
}
_AGREEMENT = {
    "matmul": _capsules(route_matmul, (0, 2, 1, 3)),
    "einsum": _capsules(route_einsum, (0, 1, 2, 3)),
    "without votes": _capsules(route_without_votes, (1, 0, 2, 3)),
}
# kind of task -> name -> (function, order of the axes of its first array in memory)
ROUTINGS = {
    "em": {
        name: (functools.partial(em, **way), (0, 2, 1, 3) if way["axis"] == 2 else (0, 2, 3, 1))
        for name, way in _EM.items()
    },
    "matrix capsules": {
        name: (functools.partial(matrix_capsules, **way), (0, 2, 1, 3)) for name, way in _EM.items()
    },
    "convolutional capsules": _AGREEMENT,
    "dense capsules": _AGREEMENT,
}
POPULAR_ROUTINGS = {"dense capsules": {"popular": (_popular, (1, 0, 3, 2))}}


def routing_steps(variants, task):
    """Return {"torch, " + name: function that performs a task of `tasks`}."""
    return {f"torch, {name}": _routing_step(*variant, task) for name, variant in variants.items()}


def _routing_step(route, axes, task):
    first, *rest = task.arrays
    arrays = [np.ascontiguousarray(first.transpose(axes)), *map(np.ascontiguousarray, rest)]
    tensors = [torch.from_numpy(x).requires_grad_() for x in arrays]
    cotangents = [torch.from_numpy(x) for x in task.cotangents]
    among = Windows(task.windows) if task.windows else SAMPLES

    def step():
        results = route(*tensors, among)
        loss = sum((x.view(g.shape) * g).sum() for x, g in zip(results, cotangents, strict=True))
        gradients = [g.numpy() for g in torch.autograd.grad(loss, tensors)]
        gradients[0] = gradients[0].transpose(np.argsort(axes))
        return loss.item(), gradients

    return step
