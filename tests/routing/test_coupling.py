"""Couplings: the shares of a child add up to 1, even with orphans and over windows."""

import numpy as np
import pytest
from routing_checks import child_of, couple_one_by_one
from tensors import draw

from minicaps import Tensor, ops
from minicaps.gradcheck import check_gradients
from minicaps.routing.couplings import Windows, beside_orphans, couple

GRIDS = {
    "none": None,
    "overlapping": Windows((3, 4), 2, 1, 2),
    "strided": Windows((5, 7), 3, 2, 1),
    "side by side": Windows((4, 4), 2, 2, 2),
    "a rest that no window holds": Windows((4, 6), 3, 2, 1),
    "one window": Windows((2, 2), 2, 1, 3),
}
each_grid = pytest.mark.parametrize("windows", GRIDS.values(), ids=GRIDS)
each_orphans = pytest.mark.parametrize("orphans", [False, True])


def draw_logits(windows, parents=3, size=1.0):
    """Draw logits (rows, I, J) of two samples."""
    if windows is None:
        return size * draw(2, 5, parents)
    p, q = windows.grid
    return size * draw(2 * p * q, windows.kernel**2 * windows.types, parents)


@each_orphans
@each_grid
def test_a_child_divides_itself_among_all_its_parents(windows, orphans):
    logits = draw_logits(windows)
    c = couple(Tensor(logits), axis=2, orphans=orphans, windows=windows).data
    np.testing.assert_allclose(c, couple_one_by_one(logits, orphans, windows), rtol=1e-12)


@each_grid
def test_shares_of_parents_and_orphans_add_up_to_one(windows):
    c = couple(Tensor(draw_logits(windows)), axis=2, orphans=True, windows=windows).data
    beside, total = beside_orphans(c, windows), {}
    np.testing.assert_array_equal(beside[..., :-1], c)
    for n, i in np.ndindex(c.shape[:2]):
        child = child_of(n, i, windows)
        total[child] = total.get(child, beside[n, i, -1]) + c[n, i].sum()
    np.testing.assert_allclose(list(total.values()), 1, rtol=1e-12)
    assert (beside[..., -1] > 0).all()


def test_without_orphans_and_windows_it_is_a_softmax():
    logits = Tensor(draw(2, 5, 3))
    for axis in (1, 2, -1):
        expected = ops.softmax(logits, axis=axis).data
        np.testing.assert_allclose(couple(logits, axis=axis).data, expected, rtol=1e-13)


@each_orphans
@each_grid
def test_parents_may_lie_along_any_axis(windows, orphans):
    logits, options = draw_logits(windows), {"orphans": orphans, "windows": windows}
    moved = couple(Tensor(logits.transpose(0, 2, 1)), axis=1, **options).data
    np.testing.assert_array_equal(
        moved.transpose(0, 2, 1), couple(Tensor(logits), axis=2, **options).data
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("logits", "orphans", "expected"),
    [
        ((1000, 1000), False, (0.5, 0.5)),
        ((1000, 0), False, (1, 0)),
        ((-1000, -1000), False, (0.5, 0.5)),
        ((0, 0), True, (1 / 3, 1 / 3)),
        ((1000, 1000), True, (0.5, 0.5)),
        ((-1000, -1000), True, (0, 0)),
        ((0, -1000), True, (0.5, 0)),
    ],
)
def test_logits_of_any_size(logits, orphans, expected, dtype):
    tensor = Tensor(np.array([[logits]], dtype), requires_grad=True)
    c = couple(tensor, axis=2, orphans=orphans)
    c.backward(np.array([[[1, 2]]], dtype))
    assert c.dtype == dtype and np.isfinite(tensor.grad).all()
    np.testing.assert_allclose(c.data[0, 0], expected, rtol=1e-6)
    np.testing.assert_allclose(beside_orphans(c.data)[0, 0, -1], 1 - sum(expected), atol=1e-6)


@each_orphans
@each_grid
def test_a_place_far_from_all_others_gets_nothing_but_numbers(windows, orphans):
    logits = draw_logits(windows, size=1e4)
    tensor = Tensor(logits, requires_grad=True)
    c = couple(tensor, axis=2, orphans=orphans, windows=windows)
    c.backward(draw(*c.shape, seed=1))
    assert np.isfinite(c.data).all() and np.isfinite(tensor.grad).all()
    assert (c.data >= 0).all() and (c.data <= 1).all()


@each_orphans
@each_grid
def test_gradients_of_couplings(windows, orphans):
    def function(logits):
        return couple(logits, axis=2, orphans=orphans, windows=windows)

    check_gradients(function, draw_logits(windows))


@each_grid
def test_the_device_computes_the_same(strict_cupy, windows):
    logits = draw_logits(windows)
    options = {"axis": 2, "orphans": True, "windows": windows}
    c = couple(Tensor(strict_cupy.asarray(logits)), **options).data
    on_device = beside_orphans(c, windows)
    assert not strict_cupy.host_syncs
    expected = beside_orphans(couple(Tensor(logits), **options).data, windows)
    np.testing.assert_allclose(on_device.get(), expected, rtol=1e-12)
