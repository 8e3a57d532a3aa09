"""Every gradient case on the stand-in for a GPU: NumPy's results, no host arrays, no waiting.

Two kinds of op may wait, because only the device has the information: indexing with booleans needs
the shape of the result, and fixed points need to know whether they have converged.
"""

import numpy as np
import pytest
from gradient_cases import CASES
from tensors import differentiate

from minicaps import Tensor, ops

WAITS = {
    "getitem_mask": {"boolean index"},
    "cosine_activation": {"get"},
    "fixed_point_of_two": {"get"},
}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_gradients_on_the_device(case, strict_cupy):
    for shape in ((2, 3), (3, 2, 2, 3), (1,), ()):
        function, arrays = case.build(shape, np.random.default_rng(0))
        arrays = [a.astype(np.float32) for a in arrays]
        cotangent = np.random.default_rng(1).normal(size=function(*map(Tensor, arrays)).shape)
        cotangent = np.asarray(cotangent, np.float32)
        expected = differentiate(function, arrays, cotangent)

        strict_cupy.host_syncs.clear()
        on_device = [strict_cupy.asarray(a) for a in arrays]
        found = differentiate(function, on_device, strict_cupy.asarray(cotangent))
        assert set(strict_cupy.host_syncs) <= WAITS.get(case.name, set())
        for array, host in zip(found, expected, strict=True):
            assert isinstance(array, strict_cupy.ndarray) and array.dtype == host.dtype
            np.testing.assert_allclose(array.get(), host, rtol=1e-5, atol=1e-5, err_msg=str(shape))


def test_gradients_belong_to_their_tensor_alone(strict_cupy):
    a, b = (Tensor(strict_cupy.asarray(np.ones((2, 3))), requires_grad=True) for _ in range(2))
    cotangent = strict_cupy.asarray(np.ones((3, 2)))
    ops.transpose(a + b).backward(cotangent)
    a.grad += 5
    np.testing.assert_array_equal(b.grad.get(), np.ones((2, 3)))
    np.testing.assert_array_equal(cotangent.get(), np.ones((3, 2)))
    cotangent += 7
    np.testing.assert_array_equal(a.grad.get(), np.full((2, 3), 6.0))


def test_arrays_of_two_machine_parts_do_not_mix(strict_cupy):
    x = Tensor(strict_cupy.asarray(np.ones(3)))
    for y in (np.ones(3), Tensor(np.ones(3))):
        for multiply in (lambda x, y: x * y, lambda x, y: y * x):
            with pytest.raises(TypeError, match="multiply got arrays on the CPU and on the GPU"):
                multiply(x, y)


def test_a_tensor_knows_where_it_is(strict_cupy):
    x = Tensor(strict_cupy.asarray(np.array([1.0, 2.0])), requires_grad=True)
    assert x.device == "gpu" and x.detach().device == "gpu" and (2 * x).device == "gpu"
    assert repr(x) == "Tensor([1., 2.], shape=(2,), float64, gpu, requires_grad=True)"
    np.testing.assert_array_equal(x.numpy(), [1, 2])
    assert isinstance(x > 1, strict_cupy.ndarray) and isinstance(x.argmax(), strict_cupy.ndarray)
    assert x[np.array([0, 0])].device == x[[True, False]].device == "gpu"
