"""Count the operations in CapsNet and measure how fast the machine can perform them.

The count includes convolutions, linear layers and votes. Each multiplication and its addition count
as 2 operations (FLOP). Every convolution is counted as a direct product of patches and kernels,
regardless of the algorithm that computes it. All other operations are negligible and are not
counted.

Notation: batch size B, C input channels, O output channels, kernel size K×L, output size P×Q, I
child capsules of N numbers, and J parent capsules of D numbers.
"""

from typing import NamedTuple

import numpy as np

from minicaps.ops.shape import output_size

PATCHES = 2**24  # elements of the patches multiplied at a time


class Product(NamedTuple):
    """`stack` matrix products of a layer's input (rows, inner) with its weights (inner, columns).

    gradients: number of gradients (1 or 2) that a training step needs; each is a product of equal
    cost.
    """

    kind: str  # "convolution", "votes" or "linear"
    stack: int
    rows: int
    inner: int
    columns: int
    gradients: int = 2

    def operations(self, train):
        """Return the FLOP count of the forward pass, plus the backward pass if `train` is true."""
        forward = 2 * self.stack * self.rows * self.inner * self.columns
        return forward * (1 + self.gradients) if train else forward


def products(model, batch, train):
    """Return the matrix products of a CapsNet in order, including the decoder if `train` is true.

    batch: number of images.
    """
    found, (height, width) = [], model.input_shape[1:]
    for layer in (*model.convolutions, model.primary.conv):
        o, c, k, l = layer.weight.shape
        height, width = output_size(height, k, layer.stride), output_size(width, l, layer.stride)
        gradients = 2 if found else 1  # the gradient of the images is not needed
        shape = batch * height * width, c * k * l, o
        found.append(Product("convolution", 1, *shape, gradients))
    i, j, n, d = model.classes.weight.shape
    found.append(Product("votes", i, batch, n, j * d))
    if train:
        for layer in model.decoder.layers:
            found.append(Product("linear", 1, batch, *layer.weight.shape))
    return found


def operations(found, train):
    """Return the number of operations that the given products require in one step."""
    return sum(product.operations(train) for product in found)


def convolutions(found):
    """Return the products that are convolutions."""
    return [product for product in found if product.kind == "convolution"]


def floor_step(found, train, multiply):
    """Return a function that computes the products and, if `train` is true, their gradients.

    A direct convolution takes longer because it also copies patches. Large products are computed in
    blocks of rows that share the same arrays.

    multiply: function of two matrices and `out`.
    """
    work = [each for product in found for each in _blocks(product, train)]

    def step():
        for times, a, b, out in work:
            for _ in range(times):
                multiply(a, b, out=out)

    return step


def _blocks(product, train):
    """Yield one tuple (times, a, b, out) for the forward pass and one for each gradient."""
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
