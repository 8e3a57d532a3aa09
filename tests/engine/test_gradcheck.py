"""The checker itself: correct gradients pass, wrong ones fail, and the message says where."""

import re

import numpy as np
import pytest
from tensors import draw

from minicaps import Tensor, ops
from minicaps.gradcheck import ALL_ENTRIES, GradientError, check_gradients
from minicaps.graph import joint
from minicaps.tensor import op

SMALL, LARGE = (5, 7), (30, 40)
assert np.prod(SMALL) <= ALL_ENTRIES < np.prod(LARGE)
MESSAGE = re.compile(
    r"argument (\d+) \(.*\), (.*): the gradient is (.+), "
    r"but central differences with step (.+) give (.+)"
)


def square(change=lambda gradient: gradient):
    """Return a function that computes x² with a gradient altered by `change`."""

    @op
    def spoiled_square(x):
        return x * x, lambda g: change(2 * g * x)

    return spoiled_square


def at(index, change):
    """Return a function that alters one entry of a gradient."""

    def changed(gradient):
        gradient[index] = change(gradient[index])
        return gradient

    return changed


def complaint(function, *arrays, **options):
    """Return the parts of the message: argument, entry, gradient, step, central difference."""
    with pytest.raises(GradientError) as caught:
        check_gradients(function, *arrays, **options)
    argument, place, found, step, numeric = MESSAGE.fullmatch(str(caught.value)).groups()
    return int(argument), place, float(found), float(step), float(numeric)


@pytest.mark.parametrize("shape", [(), (1,), SMALL, LARGE, (0, 3)])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_a_right_gradient_passes(shape, scale):
    check_gradients(square(), np.array(scale * draw(*shape)))
    check_gradients(lambda x: scale * ops.exp(x), draw(*shape))


@pytest.mark.parametrize("shape", [(), (1,), SMALL, LARGE])
@pytest.mark.parametrize("factor", [1.01, 0.99, -1.0, 0.0])
def test_a_wrong_factor_is_noticed(shape, factor):
    _, _, found, _, numeric = complaint(square(lambda g: factor * g), draw(*shape))
    assert found == pytest.approx(factor * numeric, rel=1e-4)


def test_a_wrong_sign_in_one_entry_of_a_small_array_is_located():
    argument, place, found, step, numeric = complaint(square(at((3, 4), np.negative)), draw(*SMALL))
    assert (argument, place) == (0, "entry (3, 4)")
    assert found == pytest.approx(-numeric, rel=1e-6) and step == 1e-5


def test_a_wrong_sign_in_one_entry_of_a_large_array_is_noticed():
    _, place, *_ = complaint(square(at((3, 4), np.negative)), draw(*LARGE))
    assert place.startswith("random direction")


def test_the_worst_entry_is_named():
    def spoil(gradient):
        return at(3, lambda g: 2 * g)(at(1, lambda g: 1.01 * g)(gradient))

    argument, place, *_ = complaint(
        lambda x, y: square(at(0, lambda g: 1.01 * g))(x) + square(spoil)(y), np.ones(4), np.ones(4)
    )
    assert (argument, place) == (1, "entry (3,)")


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x * y.detach(),
        lambda x, y: x * x + Tensor(y.data),
        lambda x, y: Tensor(x.data * y.data),
    ],
)
def test_a_missing_gradient_is_noticed(function):
    _, _, found, _, numeric = complaint(function, 1 + draw(3), 1 + draw(3))
    assert found == 0 != numeric


def test_an_argument_without_influence_is_right_to_get_no_gradient():
    check_gradients(lambda x, y: 2 * x, draw(3), draw(2, 2))
    check_gradients(lambda x: Tensor(np.ones(3)), draw(3))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_gradient_that_is_not_finite_is_located(bad):
    _, place, found, _, _ = complaint(square(at((1, 2), lambda g: bad)), draw(*SMALL))
    assert place == "entry (1, 2)" and not np.isfinite(found)
    complaint(square(at((1, 2), lambda g: bad)), draw(*LARGE))


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_a_value_that_is_not_finite_is_an_error():
    with pytest.raises(GradientError, match="not finite"):
        check_gradients(ops.log, np.array([1.0, -1.0]))


def test_ones_as_cotangent_would_be_blind_to_a_wrong_softmax():
    @op
    def doubled_softmax(x):
        y, pullback = ops.softmax.raw(x)
        return y, lambda g: 2 * pullback(g)

    x = draw(3, 4)
    check_gradients(lambda x: doubled_softmax(x).sum(axis=-1), x)  # a cotangent of ones
    _, _, found, _, numeric = complaint(doubled_softmax, x)
    assert found == pytest.approx(2 * numeric)


@pytest.mark.parametrize("outputs", [list, tuple])
def test_every_output_counts(outputs):
    wrong = square(lambda g: 1.01 * g)
    check_gradients(lambda x: outputs([x * x, x.sum()]), draw(3))
    complaint(lambda x: outputs([x, wrong(x)]), draw(3))
    complaint(lambda x: outputs([wrong(x), x]), draw(3))


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_narrow_arrays_are_widened(dtype):
    seen = []

    def function(x):
        seen.append(x.dtype)
        return ops.exp(x)

    check_gradients(function, draw(3).astype(dtype))
    assert set(seen) == {np.dtype(np.float64)}


@pytest.mark.parametrize(
    "array", [np.arange(3), np.array([True]), np.ones(2, complex), [1.0, 2.0], 1.0, Tensor(1.0)]
)
def test_what_is_no_floating_point_array_is_refused(array):
    with pytest.raises(TypeError, match="takes floating-point NumPy arrays, not"):
        check_gradients(lambda x: x, array)


def test_a_function_that_leaves_the_tensors_is_refused():
    with pytest.raises(TypeError, match="must return tensors, not ndarray: compute with tensors"):
        check_gradients(lambda x: x.data * 2, draw(3))


@pytest.mark.parametrize("shape", [SMALL, LARGE])
def test_the_arrays_are_left_alone(shape):
    x = draw(*shape)
    before = x.copy()
    x.flags.writeable = False
    check_gradients(lambda x: x * x, x)
    np.testing.assert_array_equal(x, before)


LAYOUTS = {
    "transposed": draw(4, 3).T,
    "strided": draw(3, 8)[:, ::2],
    "reversed": draw(3, 4)[::-1],
    "broadcast": np.broadcast_to(draw(4), (3, 4)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_op_that_errs_only_for_non_contiguous_arrays_is_noticed(layout):
    @op
    def careless_square(x):
        factor = 2 if x.flags.c_contiguous else 2.1
        return x * x, lambda g: factor * g * x

    check_gradients(careless_square, LAYOUTS[layout].copy())
    complaint(careless_square, LAYOUTS[layout])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_copies_lie_in_memory_as_the_arrays_do(layout):
    seen = []

    def function(x):
        seen.append((np.sign(x.data.strides), np.argsort(np.abs(x.data.strides)), x.data.copy()))
        return x * x

    array = LAYOUTS[layout]
    check_gradients(function, array)
    signs, order, values = seen[0]
    np.testing.assert_array_equal(values, array)
    if layout != "broadcast":
        np.testing.assert_array_equal(signs, np.sign(array.strides))
        np.testing.assert_array_equal(order, np.argsort(np.abs(array.strides)))


def test_tolerances_and_step_can_be_chosen():
    slightly_wrong = square(lambda g: 1.001 * g)
    x = 1 + draw(3) ** 2
    complaint(slightly_wrong, x)
    check_gradients(slightly_wrong, x, rtol=0.01)
    check_gradients(slightly_wrong, x, atol=0.1)
    *_, step, _ = complaint(lambda x: x**3, np.ones(2), step=0.1)  # its error is h²
    assert step == 0.1


def test_the_step_grows_with_the_entry():
    *_, step, _ = complaint(square(lambda g: 2 * g), np.array([1.0, 1e6]))
    assert step == 10


def test_the_same_seed_gives_the_same_cotangents():
    wrong, x = square(lambda g: 1.01 * g), draw(3)
    assert complaint(wrong, x, seed=1) == complaint(wrong, x, seed=1) != complaint(wrong, x, seed=2)


@pytest.mark.parametrize("factor", [1e-12, 1e-8, 1e12])
def test_small_and_large_gradients_are_judged_by_their_own_size(factor):
    @op
    def wrong(x):
        return factor * x, lambda g: -factor * g

    with pytest.raises(GradientError):
        check_gradients(wrong, np.ones(3))
    check_gradients(lambda x: factor * x, np.ones(3))
    check_gradients(lambda x: x + 1 / factor, np.ones(3))  # a value that swamps the slope


def test_each_gradient_is_checked_alone_too():
    @op
    def lazy(a, b):
        return a * b, joint(lambda g, wanted: [g * b * (1 + (not wanted[1])), g * a])

    with pytest.raises(GradientError, match=r"argument 0 .* differs when no other is required"):
        check_gradients(lazy, np.ones(3), np.ones(3))
