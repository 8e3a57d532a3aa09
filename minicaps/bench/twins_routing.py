"""Routings and capsule layers by hand in PyTorch, eager, float32, for `minicaps.bench`.

A twin takes the arrays of a task of `tasks`. Letters: B samples, or windows of all samples,
I children of N numbers, J parents of D.
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
    """Children divide themselves among the J parents of their sample."""

    gather = staticmethod(lambda children: children)
    couple = staticmethod(torch.softmax)

    def start(self, children, parents):
        """Children (B, I, …) times their couplings before any vote is heard."""
        return children / parents


class Windows:
    """They divide themselves among those of all windows of a grid that hold them.

    windows: a `minicaps.routing.couplings.Windows`. Every sum over places is a product with a
    matrix of zeros and ones.
    """

    def __init__(self, windows):
        (h, w), (p, q), k, step = windows.size, windows.grid, windows.kernel, windows.stride
        self.number, self.types, self.places = p * q, windows.types, k * k
        rows = step * np.arange(p)[:, None, None, None] + np.arange(k)[:, None]
        columns = step * np.arange(q)[:, None, None] + np.arange(k)
        seen = (w * rows + columns).reshape(-1)  # position in the grid, for P·Q·K·K
        self.held = torch.from_numpy(np.eye(h * w, dtype=np.float32)[seen])
        self.shared = self.held @ self.held.T  # 1 where two of them are the same position
        order = self.shared.argsort(1, descending=True)[:, : int(self.shared.sum(1).max())]
        own = torch.arange(len(seen)).unsqueeze(1)
        self.same = torch.where(self.shared.gather(1, order) > 0, order, own)

    def gather(self, grid):
        """The children of every window: (B, H, W, T, …) -> (B·P·Q, K·K·T, …)."""
        b, h, w, t, *rest = grid.shape
        return (self.held @ grid.reshape(b, h * w, -1)).view(-1, self.places * t, *rest)

    def couple(self, logits, axis):
        """Softmax of logits with axes B·P·Q, I and, along `axis`, J."""
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
    """Votes (I, B, J, D) of capsules (B, I, N), axes in another order; weight (I, N, J, D)."""
    i, n, *parents = weight.shape
    votes = torch.bmm(u.transpose(0, 1), weight.view(i, n, -1))
    return votes.view(i, len(u), *parents).permute(order).contiguous()


def route_matmul(u, weight, among=SAMPLES):
    """Full gradient, all of it in matrix products; the first one needs no votes."""
    i, n, j, d = weight.shape
    votes = _votes(u, weight, (1, 2, 0, 3))  # (B, J, I, D)
    s = among.start(u, j).flatten(1) @ weight.view(i * n, j * d)
    v, b = squash(s.view(-1, j, d)), 0
    for _ in range(ITERATIONS - 1):
        b = b + (votes @ v.unsqueeze(3)).squeeze(3)
        v = squash((among.couple(b, 1).unsqueeze(2) @ votes).squeeze(2))
    return v


def route_einsum(u, weight, among=SAMPLES):
    """Full gradient, as the formulas are written; weight (I, J, N, D)."""
    votes = torch.einsum("bin,ijnd->bjid", u, weight)
    b = votes.new_zeros(votes.shape[:3])
    for iteration in range(ITERATIONS):
        v = squash(torch.einsum("bji,bjid->bjd", among.couple(b, 1), votes))
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


def route_without_votes(u, weight, among=SAMPLES):
    """Full gradient; s_j = Σ_i c_ij u_i W_ij as one product; weight (J, I, N, D)."""
    size = u.shape[1:]
    weight = weight.flatten(1, 2)  # (J, I·N, D)
    v, b = squash(among.start(u, len(weight)).flatten(1) @ weight), 0  # (J, B, D)
    for _ in range(ITERATIONS - 1):
        b = b + ((v @ weight.transpose(1, 2)).unflatten(2, size) * u).sum(3)  # (J, B, I)
        v = squash((among.couple(b, 0).unsqueeze(3) * u).flatten(2) @ weight)
    return v.transpose(0, 1)


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


def em(votes, activations, beta_u, beta_a, among, *, axis, contract, gaussians=Deviations):
    """All steps of EM routing; votes (B, J, I, D) or (B, J, D, I), their children along `axis`."""
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
    """EM routing of the votes that weight (I, 4, J, 4) makes of the poses of a grid."""
    poses, activations = among.gather(poses), among.gather(activations)
    b, i, n, _ = poses.shape
    j = weight.shape[2]
    stacked = poses.transpose(0, 1).reshape(i, -1, n)
    votes = torch.bmm(stacked, weight.view(i, n, j * n)).view(i, b, n, j, n)
    order = (1, 3, 0, 2, 4) if axis == 2 else (1, 3, 2, 4, 0)
    votes = votes.permute(order).contiguous().flatten(5 - axis, 6 - axis)
    return em(votes, activations, beta_u, beta_a, among, axis=axis, **options)


def _capsules(route, axes):
    """Agreement in a capsule layer: its function, and the order of axes in its weight."""
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
# kind of task -> name -> function, order of the axes in memory of the first array that it takes
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
    """Return {"torch, " + name: function that does a task of `tasks`}."""
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
