"""What CapsNet costs by direct computation, in operations, and in time at the machine's best rate.

Counted are the multiplications of convolutions, linear layers and votes, each with its addition as
2 operations (FLOP), as if every convolution multiplied patches by kernels, however it is computed.
Everything else is small beside them, and not counted. Letters: B batch, C input and O output
channels, K×L kernel, P×Q output, I capsules of N numbers, J of D.
"""

from typing import NamedTuple

import numpy as np

from minicaps.ops.shape import output_size

PATCHES = 2**24  # numbers in the patches that are multiplied at a time


class Product(NamedTuple):
    """`stack` products of matrices: (rows, inner), what a layer sees, times (inner, columns).

    gradients: how many of its two gradients a training step needs, each as large a product.
    """

    kind: str  # "convolution", "votes" or "linear"
    stack: int
    rows: int
    inner: int
    columns: int
    gradients: int = 2

    def operations(self, train):
        """FLOP of a step: forward and, in training, backward."""
        forward = 2 * self.stack * self.rows * self.inner * self.columns
        return forward * (1 + self.gradients) if train else forward


def products(model, batch, train):
    """The products of a CapsNet for `batch` images, in order. Only training has a decoder."""
    found, (height, width) = [], model.input_shape[1:]
    for layer in (*model.convolutions, model.primary.conv):
        o, c, k, l = layer.weight.shape
        height, width = output_size(height, k, layer.stride), output_size(width, l, layer.stride)
        gradients = 2 if found else 1  # nobody wants that of the images
        shape = batch * height * width, c * k * l, o
        found.append(Product("convolution", 1, *shape, gradients))
    i, j, n, d = model.classes.weight.shape
    found.append(Product("votes", i, batch, n, j * d))
    if train:
        for layer in model.decoder.layers:
            found.append(Product("linear", 1, batch, *layer.weight.shape))
    return found


def operations(found, train):
    """FLOP of a step of these products."""
    return sum(product.operations(train) for product in found)


def convolutions(found):
    """Those of the products that are convolutions."""
    return [product for product in found if product.kind == "convolution"]


def floor_step(found, train, multiply):
    """Return a function that does these products, with their gradients in training, and no more.

    A direct convolution takes longer: it copies patches, too. multiply: called with two matrices
    and `out`. Many rows are multiplied a block at a time, always the same ones.
    """
    work = [each for product in found for each in _blocks(product, train)]

    def step():
        for times, a, b, out in work:
            for _ in range(times):
                multiply(a, b, out=out)

    return step


def _blocks(product, train):
    """Yield (times, a, b, out) of the forward pass and of each gradient."""
    most = min(product.rows, max(1, PATCHES // product.inner))
    whole, rest = divmod(product.rows, most)
    for times, rows in ((whole, most), (1, rest)):
        if rows == 0:
            continue
        seen = np.ones((rows, product.inner), np.float32)
        kernel = np.ones((product.inner, product.columns), np.float32)
        made = np.empty((rows, product.columns), np.float32)
        yield times, seen, kernel, made
        if train:
            yield times, seen.T, made, np.empty_like(kernel)
            if product.gradients == 2:
                yield times, made, kernel.T, np.empty_like(seen)
