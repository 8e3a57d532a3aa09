"""Arrays as a network takes them."""

from minicaps.backend import array_module
from minicaps.tensor import Tensor


def tensor_for(model, array) -> Tensor:
    """Put images, or poses, on the device of the model's parameters, in their dtype."""
    _, one = next(model.named_parameters())
    return Tensor(array_module(one.data).asarray(array, dtype=one.dtype))
