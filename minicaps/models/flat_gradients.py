"""Sum the gradients of all ranks in a single operation."""

import numpy as np

from minicaps import ranks
from minicaps.backend import array_module, to_host


class FlatGradients:
    """One flat buffer for the gradients of all parameters and for a few numbers.

    Every rank computes the gradient of its share of the loss, and ∂(Σ_r L_r)/∂θ = Σ_r ∂L_r/∂θ. A
    message for each parameter would cost its latency each time, so there is one for all.

    parameters: tensors of one dtype. numbers: how many numbers are summed with them.
    """

    def __init__(self, parameters, numbers):
        self.parameters, self.numbers = list(parameters), numbers
        sizes = np.cumsum([0, *(p.size for p in self.parameters)])
        one = self.parameters[0].data
        self.flat = array_module(one).zeros(sizes[-1] + numbers, one.dtype)
        pieces = zip(self.parameters, sizes[:-1].tolist(), sizes[1:].tolist(), strict=True)
        self.views = [_laid_out_like(p.data, self.flat[first:end]) for p, first, end in pieces]

    def add_up(self, *numbers):
        """Replace each gradient by its sum over the ranks; return the sums of the numbers.

        The numbers are scalars or 0-d arrays on the device, and their sums are on the host. The
        gradients are views of the buffer until the next call.
        """
        pairs = list(zip(self.parameters, self.views, strict=True))
        for p, view in pairs:
            view[...] = 0 if p.grad is None else p.grad
        for place, number in enumerate(numbers, len(self.flat) - self.numbers):
            self.flat[place] = number
        host = to_host(self.flat)  # from a GPU, a copy, which waits for the GPU
        ranks.add_up(host)
        if host is not self.flat:
            self.flat[...] = array_module(self.flat).asarray(host)
        for p, view in pairs:
            p.grad = None if p.grad is None else view
        return host[len(host) - self.numbers :].tolist()


def _laid_out_like(array, piece):
    """Return a view of the flat `piece` with the shape and the memory layout of `array`."""
    order = np.argsort([-stride for stride in array.strides], kind="stable").tolist()
    inverse = np.argsort(order).tolist()
    return piece.reshape([array.shape[axis] for axis in order]).transpose(inverse)
