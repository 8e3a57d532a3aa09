"""Matrix products and Einstein summation, both computed by BLAS."""

import math

from minicaps.backend import array_module
from minicaps.graph import joint
from minicaps.sums import total
from minicaps.tensor import Tensor, op
from minicaps.threads import matmul as product

__all__ = ["einsum", "matmul"]


@op
def matmul(a, b):
    """Matrix product a @ b over the last two axes; the leading axes broadcast as in NumPy."""
    xp = array_module(a, b)
    rows = a[None, :] if a.ndim == 1 else a
    columns = b[:, None] if b.ndim == 1 else b

    def as_matrix(g):
        """Restore the axes that NumPy drops for vectors."""
        g = g[..., None] if b.ndim == 1 else g
        return g[..., None, :] if a.ndim == 1 else g

    def pull_a(g):
        return product(as_matrix(g), xp.swapaxes(columns, -1, -2))

    def pull_b(g):
        g = as_matrix(g)
        if b.ndim == 2 and a.ndim > 2:  # one product of tall matrices sums over the batch
            n = math.prod(a.shape[:-1])
            return product(a.reshape(n, a.shape[-1]).T, g.reshape(n, g.shape[-1]))
        g = product(xp.swapaxes(rows, -1, -2), g)
        return g[..., 0] if b.ndim == 1 else g

    y = product(a, b) if min(a.ndim, b.ndim) > 1 else a @ b
    return y, (pull_a, pull_b)


def einsum(subscripts: str, *operands: Tensor) -> Tensor:
    """Sum of products in Einstein notation, e.g. einsum("bij,bijd->bjd", c, votes).

    The subscripts must contain all indices and the arrow. Repeated indices in one operand and "..."
    are not supported.
    """
    inputs, arrow, output = subscripts.replace(" ", "").partition("->")
    inputs = inputs.split(",")
    if not arrow or "." in subscripts:
        raise ValueError(f'einsum needs all indices and an arrow, as in "ij,jk->ik": {subscripts}')
    if len(inputs) != len(operands):
        raise ValueError(f"{subscripts!r} needs {len(inputs)} operands, not {len(operands)}")
    for letters in (*inputs, output):
        if len(set(letters)) < len(letters):
            raise ValueError(f"an index occurs twice in {letters!r} of {subscripts!r}")
    sizes = {}
    for letters, x in zip(inputs, operands, strict=True):
        if len(letters) != x.ndim:
            raise ValueError(f"{letters!r} of {subscripts!r} does not match a {x.ndim}-d array")
        for c, n in zip(letters, x.shape, strict=True):
            if sizes.setdefault(c, n) != n:
                raise ValueError(f"index {c!r} of {subscripts!r} has both size {sizes[c]} and {n}")
    if not set(output) <= set("".join(inputs)):
        raise ValueError(f"{subscripts!r} has output indices that no operand has")
    return _einsum(*operands, inputs=tuple(inputs), output=output)


@op
def _einsum(*arrays, inputs, output):
    """Contract all operands.

    The gradient of an operand is the contraction of the cotangent with the other operands.
    """
    sizes = {}
    for letters, x in zip(inputs, arrays, strict=True):
        sizes |= zip(letters, x.shape, strict=True)

    def sweep(g, wanted):
        gradients = []
        for k, want in enumerate(wanted):
            others = [(i, x) for n, (i, x) in enumerate(zip(inputs, arrays, strict=True)) if n != k]
            operands = [(output, g), *others]
            gradients.append(_contract(operands, inputs[k], sizes) if want else None)
        return gradients

    return _contract(list(zip(inputs, arrays, strict=True)), output, sizes), joint(sweep)


def _contract(operands, output, sizes):
    """Contract (indices, array) pairs from left to right.

    An index that is no longer needed is summed over immediately.
    """
    (letters, x), rest = operands[0], operands[1:]
    while rest:
        (other, y), rest = rest[0], rest[1:]
        needed = set(output).union(*(i for i, _ in rest))
        letters, x = _contract_pair(letters, x, other, y, needed)
    x, letters = _sum_out(x, list(letters), keep=output)
    missing = [c for c in output if c not in letters]  # summed within a single operand
    xp = array_module(x)
    wide = x.shape + tuple(sizes[c] for c in missing)
    x = xp.broadcast_to(x.reshape(x.shape + (1,) * len(missing)), wide)
    return x.transpose([(letters + missing).index(c) for c in output])


def _contract_pair(p, x, q, y, needed):
    """Contract x (indices p) with y (indices q) using a single batched matrix product."""
    x, p = _sum_out(x, p, keep=needed | set(q))
    y, q = _sum_out(y, q, keep=needed | set(p))
    batch = [c for c in p if c in q and c in needed]
    summed = [c for c in p if c in q and c not in needed]
    left = [c for c in p if c not in q]
    right = [c for c in q if c not in p]
    x = x.transpose([p.index(c) for c in batch + left + summed])
    y = y.transpose([q.index(c) for c in batch + summed + right])
    nb, nl, ns = len(batch), len(left), len(summed)
    shape = x.shape[: nb + nl] + y.shape[nb + ns :]
    k = math.prod(x.shape[nb + nl :])
    x = x.reshape((*x.shape[:nb], math.prod(x.shape[nb : nb + nl]), k))
    y = y.reshape((*y.shape[:nb], k, math.prod(y.shape[nb + ns :])))
    return batch + left + right, product(x, y).reshape(shape)


def _sum_out(x, letters, keep):
    """Sum x over the indices that are not in `keep`."""
    gone = tuple(n for n, c in enumerate(letters) if c not in keep)
    return (total(x, gone) if gone else x), [c for c in letters if c in keep]
