"""Convert arrays to the tensors that a network expects as inputs."""

from minicaps.backend import array_module
from minicaps.tensor import Tensor


def tensor_for(model, array) -> Tensor:
    """Convert images or poses to a tensor with the device and dtype of the model's parameters."""
    _, one = next(model.named_parameters())
    return Tensor(array_module(one.data).asarray(array, dtype=one.dtype))
