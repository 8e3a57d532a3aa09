"""The engine: graphs, the backward pass, memory, dtypes, errors, and the behavior of Tensor."""

import copy
import gc
import operator
import pickle
import threading
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensors import collector_off, leaf

from minicaps import Tensor, no_grad, ops
from minicaps.graph import Node, joint, unbroadcast
from minicaps.tensor import op

ARITHMETIC = ("add", "sub", "mul", "truediv", "pow")
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


# --- Graphs --------------------------------------------------------------------------------------


def test_a_value_used_twice_gets_both_gradients():
    a = leaf(1.0)
    b = a + a
    c = b + b
    c.backward()
    assert a.grad == 4


def test_y_is_x_squared_plus_x():
    x = leaf(3.0)
    (x * x + x).backward()
    assert x.grad == 7


def test_a_diamond_is_pulled_back_once():
    runs = []

    @op
    def counted(x):
        return 2 * x, lambda g: (runs.append(1), 2 * g)[1]

    x = leaf(1.0)
    h = counted(x)
    (h * h + 3 * h + h.exp()).backward()
    assert runs == [1]
    assert x.grad == pytest.approx(2 * (4 + 3 + np.exp(2)))


@pytest.mark.parametrize("select", [list, lambda x: [x[k : k + 1] for k in range(len(x))]])
def test_a_loop_over_rows_makes_one_gradient_for_all(select, monkeypatch):
    """One array per row would take time and memory that grow with the square of the rows."""
    x, made, zeros_like = leaf(np.arange(600.0).reshape(200, 3)), [], np.zeros_like
    total = sum((row * row).sum() for row in select(x))
    monkeypatch.setattr(np, "zeros_like", lambda *args: made.append(1) or zeros_like(*args))
    total.backward()
    np.testing.assert_array_equal(x.grad, 2 * x.data)
    assert len(made) == 1


@pytest.mark.parametrize("first", [True, False])
def test_the_gradient_of_an_index_leaves_shared_gradients_alone(first):
    a, b = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    x, y = a * 1, b * 1
    parts = [lambda: x[0] + x[[1, 1]].sum(), lambda: (x + y).sum() + y[1]]
    sum(part() for part in (parts if first else parts[::-1])).backward()
    np.testing.assert_array_equal(a.grad, [2, 3])
    np.testing.assert_array_equal(b.grad, [1, 2])


def test_a_chain_of_10000_additions():
    x = leaf([1.0, 2.0])
    y = x
    for _ in range(10_000):
        y = y + 1
    y.sum().backward()
    np.testing.assert_array_equal(x.grad, [1, 1])


@pytest.mark.slow
def test_a_long_graph_that_nobody_sweeps_is_dropped_without_recursion():
    y = leaf(1.0)
    for _ in range(50_000):
        y = y + 1
    del y


def test_gradients_accumulate_over_graphs():
    x = leaf([1.0, 2.0])
    (x * x).sum().backward()
    (3 * x).sum().backward()
    np.testing.assert_array_equal(x.grad, [5, 7])
    x.grad = None
    (3 * x).sum().backward()
    np.testing.assert_array_equal(x.grad, [3, 3])


def test_a_cotangent_weighs_the_outputs():
    x = leaf([1.0, 2.0, 3.0])
    for cotangent in (np.array([1.0, 0.0, -2.0]), Tensor([1.0, 0.0, -2.0])):
        x.grad = None
        (x * x).backward(cotangent)
        np.testing.assert_array_equal(x.grad, [2, 0, -12])


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_one_element_needs_no_cotangent(shape):
    x = Tensor(np.full(shape, 3.0), requires_grad=True)
    (x * x).backward()
    np.testing.assert_array_equal(x.grad, np.full(shape, 6.0))


def test_backward_on_a_leaf():
    x = leaf([1.0, 2.0])
    x.backward(np.array([3.0, 4.0]))
    x.backward(np.array([3.0, 4.0]))
    np.testing.assert_array_equal(x.grad, [6, 8])


def test_detach_stops_the_gradient():
    x = leaf(3.0)
    (x * x.detach()).backward()
    assert x.grad == 3
    assert not x.detach().requires_grad


def test_only_wanted_gradients_are_computed():
    def fail(g):
        raise AssertionError("nobody wants this gradient")

    @op
    def careful_product(a, b):
        return a * b, (lambda g: g * b, fail)

    asked = []

    @op
    def joint_product(a, b):
        return a * b, joint(lambda g, wanted: (asked.append(wanted), [g * b, None])[1])

    x = leaf(3.0)
    for other in (Tensor(2.0), np.array(2.0), 2.0):
        x.grad = None
        (careful_product(x, other) + joint_product(x, other)).backward()
        assert x.grad == 4
    assert asked == [(True, False)] * 3


def test_arguments_may_be_given_by_name_or_left_out():
    x, w, b = leaf(np.ones((1, 1, 2, 2))), leaf(np.ones((1, 1, 2, 2))), leaf([1.0])
    for y in (ops.conv2d(x, w), ops.conv2d(weight=w, x=x), ops.conv2d(x, w, None)):
        x.grad = w.grad = None
        y.backward()
        np.testing.assert_array_equal(x.grad, w.data)
        np.testing.assert_array_equal(w.grad, x.data)
    ops.conv2d(x, w, bias=b).backward()
    np.testing.assert_array_equal(b.grad, [1])
    with pytest.raises(TypeError, match=r"add\(\) missing 1 required positional argument: 'b'"):
        ops.add(x)


# --- Broadcasting --------------------------------------------------------------------------------


def test_broadcast_inputs_get_gradients_of_their_shape():
    a, b = leaf(np.ones((3, 1))), leaf(np.arange(4.0)[None])
    (a * b).sum().backward()
    np.testing.assert_array_equal(a.grad, np.full((3, 1), 6.0))
    np.testing.assert_array_equal(b.grad, np.full((1, 4), 3.0))


def test_subtracting_the_mean_leaves_no_gradient():
    x = leaf([1.0, 2.0, 4.0])
    (x - x.mean()).sum().backward()
    np.testing.assert_allclose(x.grad, 0, atol=1e-15)


@settings(max_examples=50, deadline=None, derandomize=True, database=None)
@given(st.lists(st.integers(0, 3), max_size=4), st.integers(0, 4), st.integers(0, 2**20))
def test_unbroadcast_is_the_transpose_of_broadcasting(shape, added, seed):
    rng = np.random.default_rng(seed)
    small = tuple(int(rng.choice([n, 1])) for n in shape)[min(added, len(shape)) :]
    g, x = rng.normal(size=shape), rng.normal(size=small)
    back = unbroadcast(g, small)
    assert back.shape == small
    assert np.sum(back * x) == pytest.approx(np.sum(g * np.broadcast_to(x, shape)))


# --- Memory --------------------------------------------------------------------------------------


@pytest.fixture
def no_collector():
    """Only reference counts free memory."""
    with collector_off():
        yield


def capturing_op(seen):
    """Return an op that captures an array and stores a weak reference to it in `seen`."""

    @op
    def capturing(x):
        captured = np.ones(x.shape)
        seen.append(weakref.ref(captured))
        return x * captured, lambda g: g * captured

    return capturing


def test_the_sweep_frees_what_pullbacks_captured(no_collector):
    alive, seen = [], []
    capturing = capturing_op(seen)

    @op
    def look(x):
        return 1 * x, lambda g: (alive.append([r() is not None for r in seen]), g)[1]

    h = capturing(leaf(np.ones(3)))
    y = capturing(look(h))
    y.backward(np.ones(3))
    assert alive == [[True, False]]  # the later one is freed during the backward pass
    assert [r() for r in seen] == [None, None]
    assert h.requires_grad and y.requires_grad  # although both tensors are still alive


def test_an_output_that_was_swept_holds_no_graph(no_collector):
    y = leaf(np.ones(3))
    for _ in range(100):
        y = y + 1
    before = count_nodes()
    y.backward(np.ones(3))
    assert before - count_nodes() >= 99


def count_nodes():
    return sum(isinstance(thing, Node) for thing in gc.get_objects())


def test_dropping_the_output_frees_the_graph(no_collector):
    seen = []
    capturing = capturing_op(seen)
    y = capturing(capturing(leaf(np.ones(3))))
    assert [r() is None for r in seen] == [False, False]
    del y
    assert [r() for r in seen] == [None, None]


def test_intermediate_values_are_not_kept_by_the_tensor_that_used_them(no_collector):
    x = leaf(np.ones(3))
    h = x + 1
    r = weakref.ref(h)
    y = h + 1  # addition needs neither of its inputs
    del h
    assert r() is None
    y.sum().backward()


def test_a_leaf_that_is_gone_does_not_disturb_the_others(no_collector):
    x = leaf([1.0, 2.0])
    y = (x * leaf([3.0, 4.0])).sum()
    y.backward()
    np.testing.assert_array_equal(x.grad, [3, 4])


# --- Gradients own their memory ------------------------------------------------------------------


def shares(array, others):
    return any(np.shares_memory(array, other) for other in others)


def test_gradients_share_no_memory():
    """Gradients share no memory with each other, the caller's cotangent or any data."""
    a, b, c = leaf(np.ones((2, 3))), leaf(np.ones((2, 3))), leaf(np.ones(3))
    cotangent = np.arange(6.0).reshape(2, 3)
    parts = ops.concatenate([a + b, ops.expand(c, shape=(2, 3))], axis=1)
    y = ops.stack([a + b + c, parts[:, 3:], ops.transpose(b.T)]).sum(axis=0) + a
    y.backward(cotangent)
    arrays = [a.grad, b.grad, c.grad, cotangent, a.data, b.data, c.data, y.data]
    for i, gradient in enumerate(arrays[:3]):
        assert not shares(gradient, arrays[:i] + arrays[i + 1 :])
        before = [x.copy() for x in arrays]
        gradient += 1
        for j, array in enumerate(arrays):
            np.testing.assert_array_equal(array, before[j] + (i == j))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x,
        lambda x: x + 0,
        lambda x: x.reshape(3, 1),
        lambda x: x.T,
        lambda x: ops.squash(x, kind="none"),
        lambda x: ops.expand(x, shape=(1, 3)),
        lambda x: x[::-1],
        lambda x: x.sum(),
    ],
)
def test_a_gradient_can_be_written_to(function):
    x = leaf([1.0, 2.0, 3.0])
    y = function(x)
    cotangent = np.ones(y.shape)
    y.backward(cotangent)
    x.grad *= 100
    assert (cotangent == 1).all()
    np.testing.assert_array_equal(x.grad, [100, 100, 100])
    function(x).backward(cotangent)
    np.testing.assert_array_equal(x.grad, [101, 101, 101])


@pytest.mark.parametrize("uses", [1, 2])
def test_gradients_are_arrays_also_without_axes(uses):
    x = leaf(3.0)
    sum([x * x] * uses).backward()
    x.grad[...] = 5
    (2 * x).backward()
    assert isinstance(x.grad, np.ndarray) and x.grad == 7


# --- No graph under no_grad ----------------------------------------------------------------------


def test_no_graph_under_no_grad():
    x = leaf(3.0)
    with no_grad():
        y = x * x
        with no_grad():
            pass
        z = x * x  # the inner block did not turn recording back on
    assert not y.requires_grad and not z.requires_grad
    assert (x * x).requires_grad


def test_no_grad_ends_with_an_error():
    with pytest.raises(KeyError), no_grad():
        raise KeyError
    assert (leaf(1.0) * 2).requires_grad


def test_no_grad_keeps_to_its_thread():
    x, seen, inside, done = leaf(3.0), {}, threading.Event(), threading.Event()

    def work():
        seen["outside"] = (x * x).requires_grad
        with no_grad():
            inside.set()
            done.wait(10)
            seen["inside"] = (x * x).requires_grad

    with no_grad():
        thread = threading.Thread(target=work)
        thread.start()
        inside.wait(10)
    seen["main"] = (x * x).requires_grad  # while the other thread is in its block
    done.set()
    thread.join()
    assert seen == {"outside": True, "inside": False, "main": True}


def test_threads_build_graphs_side_by_side():
    xs = [leaf(np.full(50, float(n))) for n in range(8)]

    def work(x):
        y = x
        for _ in range(100):
            y = y * 1 + x
        y.sum().backward()

    threads = [threading.Thread(target=work, args=(x,)) for x in xs]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for x in xs:
        np.testing.assert_array_equal(x.grad, np.full(50, 101.0))


# --- Errors --------------------------------------------------------------------------------------


def test_a_second_backward_is_an_error_and_no_number():
    x = leaf(3.0)
    y = x * x
    y.backward()
    with pytest.raises(
        RuntimeError,
        match=r"backward\(\) reached multiply, whose graph was freed by an earlier backward\(\):"
        r" recompute the output, or add the losses and call backward\(\) once",
    ):
        y.backward()
    assert x.grad == 6


def test_a_shared_part_cannot_be_swept_twice():
    x = leaf(3.0)
    h = x.exp()
    first, second = h * 2, h * 3
    first.backward()
    before = x.grad.copy()
    with pytest.raises(RuntimeError, match="reached exp, whose graph was freed by"):
        second.backward()
    assert x.grad == before


@pytest.mark.parametrize("y", [Tensor(1.0), Tensor(1.0) + 1])
def test_backward_needs_a_graph(y):
    with pytest.raises(RuntimeError, match="that depends on one with requires_grad=True"):
        y.backward()


def test_backward_of_several_elements_needs_a_cotangent():
    with pytest.raises(ValueError, match=r"shape \(2, 3\) needs a cotangent of that shape"):
        (leaf(np.ones((2, 3))) * 1).backward()


@pytest.mark.parametrize(
    ("cotangent", "given"),
    [
        (np.ones(3), r"\(3,\) float64"),
        (np.ones((1, 2)), r"\(1, 2\) float64"),
        (np.ones(2, np.float32), r"\(2,\) float32"),
        (Tensor(np.ones(3)), r"\(3,\) float64"),
        ([1.0, 1.0], "list"),
        (1.0, "float"),
    ],
)
def test_a_cotangent_must_fit(cotangent, given):
    with pytest.raises(ValueError, match=rf"cotangent is {given}, but the tensor \(2,\) float64"):
        leaf([1.0, 2.0]).backward(cotangent)


@pytest.mark.parametrize("dtype", [int, bool, np.uint8])
def test_only_floating_point_tensors_can_require_a_gradient(dtype):
    with pytest.raises(TypeError, match=rf"this one is {np.dtype(dtype)}: .*astype"):
        Tensor(np.ones(2, dtype), requires_grad=True)


@pytest.mark.parametrize(
    ("pullback", "message"),
    [
        (lambda g: g[:1], r"of careless returned a \(1,\) float64 .* for a \(2,\) float64 input"),
        (lambda g: g.sum(), r"of careless returned a \(\) float64"),
        (lambda g: np.ones((2, 3)), r"of careless returned a \(3,\) float64"),
        (lambda g: g.astype(np.float32), r"of careless returned a \(2,\) float32"),
        (lambda g: None, "pullback of careless gives no gradient for argument 0"),
        ((lambda g: g, lambda g: g), "careless has 2 pullbacks for 1 arguments"),
        ((), "careless has 0 pullbacks for 1 arguments"),
        ((None,), "pullback of careless gives no gradient for argument 0"),
        (joint(lambda g, wanted: [g, g]), "careless returned 2 gradients for 1 inputs"),
        (joint(lambda g, wanted: [g[:1]]), r"of careless returned a \(1,\)"),
    ],
)
def test_a_wrong_pullback_is_named(pullback, message):
    @op
    def careless(x):
        return x * 1, pullback

    with pytest.raises(TypeError, match=message):
        careless(leaf([1.0, 2.0])).backward(np.ones(2))


@pytest.mark.parametrize("shape", [(1,), (1, 1), (2, 1, 1), (1, 3)])
def test_a_gradient_with_too_few_axes_is_named(shape):
    @op
    def careless(x):
        return x * 1, lambda g: g.sum()

    with pytest.raises(TypeError, match="pullback of careless returned a"):
        careless(leaf(np.ones(shape))).backward(np.ones(shape))


@pytest.mark.parametrize("operand", [[1.0, 2.0], (1.0, 2.0), "ab", {"a": 1}])
def test_operands_must_be_wrapped(operand):
    x = leaf([1.0, 2.0])
    for name in ("__add__", "__rmul__", "__pow__", "__matmul__"):
        kind = type(operand).__name__
        with pytest.raises(TypeError, match=rf"got a {kind}; it takes tensors, arrays and numbers"):
            getattr(x, name)(operand)


def test_data_replaced_between_forward_and_backward_is_noticed():
    w = leaf([1.0, 2.0])
    y = (w * w).sum()
    w.data = w.data - 0.1
    with pytest.raises(RuntimeError, match=r"data of an input of multiply was replaced"):
        y.backward()
    assert w.grad is None
    (w * w).sum().backward()
    np.testing.assert_allclose(w.grad, [1.8, 3.8])


def test_what_the_graph_holds_cannot_be_written_to():
    x = leaf([1.0, 2.0])
    for y in (x.exp(), x[::-1], x.reshape(2, 1), ops.squash(x, kind="none")):
        with pytest.raises(ValueError, match="read-only"):
            y.data[...] = 0
        with pytest.raises(TypeError, match="cannot be modified in place"):
            y[0] = 0
    x.data[0] = 5  # the leaf itself stays writable
    with no_grad():
        y = x.exp()
    y.data[...] = 0


@pytest.mark.parametrize("data", [np.ones(3), np.ones((2, 1)), np.ones(2, np.float32), [1, 2], 1.0])
def test_new_data_must_fit(data):
    x = leaf([1.0, 2.0])
    with pytest.raises(ValueError, match=r"this tensor is \(2,\) float64: make a new Tensor"):
        x.data = data
    np.testing.assert_array_equal(x.data, [1, 2])


def test_data_stays_an_array():
    x = leaf(3.0)
    x.data = x.data - 1  # a scalar for NumPy
    assert isinstance(x.data, np.ndarray) and x.data == 2
    with pytest.raises(TypeError, match="use \\.data"):
        x.data = x - 1


@pytest.mark.parametrize("data", [1j, np.array([None]), "abc", [Tensor(1.0)], Tensor(1.0)])
def test_tensors_hold_real_numbers(data):
    with pytest.raises(TypeError):
        Tensor(data)


# --- Dtypes --------------------------------------------------------------------------------------

SCALARS = [2, 2.5, True, np.float64(2.5), np.float32(2.5), np.int64(2), np.bool_(True)]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("scalar", SCALARS, ids=lambda s: f"{type(s).__name__}")
@pytest.mark.parametrize("name", ARITHMETIC)
def test_numbers_take_the_dtype_of_the_tensor(dtype, scalar, name):
    operation = getattr(operator, name)
    for data in ([1.0, 2.0], 1.0):
        x = leaf(data, dtype)
        for y in (operation(x, scalar), operation(scalar, x)):
            assert y.dtype == dtype
            y.sum().backward()
            assert x.grad.dtype == dtype


def test_options_that_are_numbers_of_numpy_change_no_dtype():
    x = leaf([0.5, 2.0], np.float32)
    half = np.float64(0.5)
    lengths = leaf([[0.5, 0.2]], np.float32)
    for y in (
        ops.clip(x, low=half, high=np.float64(1)),
        ops.margin_loss(lengths, np.array([0]), m_plus=half, m_minus=half, down_weight=half),
        ops.reconstruction_loss(x, x.detach(), weight=half),
        x.sum(axis=np.int64(0)),
    ):
        assert y.dtype == np.float32


def test_reductions_to_one_number_keep_the_dtype():
    for dtype in (np.float16, np.float32, np.float64):
        x = leaf([[1.0, 2.0]], dtype)
        for y in (x.sum(), x.mean(), x.max(), ops.logsumexp(x), (x @ x.T)[0, 0]):
            assert y.dtype == dtype and y.shape == () and isinstance(y.data, np.ndarray)
            y.backward()
            assert x.grad.dtype == dtype


@pytest.mark.parametrize("name", [*ARITHMETIC, "matmul"])
def test_mixed_precisions_give_each_input_its_own(name):
    a, b = leaf([[1.0, 2.0], [3.0, 4.0]], np.float32), leaf([[2.0, 1.0], [1.0, 3.0]])
    y = getattr(operator, name)(a, b)
    assert y.dtype == np.float64
    y.sum().backward()
    assert a.grad.dtype == np.float32 and b.grad.dtype == np.float64
    twin = leaf(a.data)
    getattr(operator, name)(twin, b.detach()).sum().backward()
    np.testing.assert_allclose(a.grad, twin.grad, rtol=1e-6)


# --- A Tensor among NumPy arrays -----------------------------------------------------------------


@pytest.mark.parametrize("name", [*ARITHMETIC, "matmul"])
@pytest.mark.parametrize("kind", [np.array, Tensor])
def test_operators_take_arrays_on_either_side(name, kind):
    operation = getattr(operator, name)
    a, b = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[2.0, 1.0], [1.0, 3.0]])
    for left, right in ((leaf(a), kind(b)), (kind(a), leaf(b))):
        y = operation(left, right)
        assert isinstance(y, Tensor) and y.requires_grad
        np.testing.assert_array_equal(y.data, operation(a, b))


@pytest.mark.parametrize("scalar", [*SCALARS, np.array(2.0)], ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("name", ARITHMETIC)
def test_operators_take_numbers_on_either_side(name, scalar):
    operation, a = getattr(operator, name), np.array([1.0, 3.0])
    for y, expected in (
        (operation(leaf(a), scalar), operation(a, float(scalar))),
        (operation(scalar, leaf(a)), operation(float(scalar), a)),
    ):
        assert isinstance(y, Tensor) and y.requires_grad
        np.testing.assert_array_equal(y.data, expected)


def test_a_tensor_is_not_added_to_an_array_in_place():
    a = np.ones(2)
    with pytest.raises(TypeError):
        a += leaf([1.0, 2.0])
    np.testing.assert_array_equal(a, 1)


@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons_give_boolean_arrays(name):
    compare, a, b = getattr(operator, name), np.array([1.0, 2.0, 3.0]), np.array([2.0, 2.0, 2.0])
    for left, right in ((leaf(a), leaf(b)), (leaf(a), b), (a, leaf(b)), (leaf(a), 2)):
        answer = compare(left, right)
        assert isinstance(answer, np.ndarray) and answer.dtype == bool
        np.testing.assert_array_equal(answer, compare(a, b))


def test_unary_operators_and_methods():
    x = leaf([[-1.0, 2.0, 4.0]])
    for y, expected in (
        (-x, [[1, -2, -4]]),
        (abs(x), [[1, 2, 4]]),
        (abs(x).sqrt(), [[1, 2**0.5, 2]]),
        (x.exp().log(), x.data),
        (x.clip(0, 3), [[0, 2, 3]]),
        (x.clip(high=3), [[-1, 2, 3]]),
        (x.sum(), 5),
        (x.sum(axis=1), [5]),
        (x.mean(axis=1, keepdims=True), [[5 / 3]]),
        (x.max(axis=-1), [4]),
        (x.reshape(3, 1), [[-1], [2], [4]]),
        (x.reshape((3,)), [-1, 2, 4]),
        (x.reshape(-1), [-1, 2, 4]),
        (x.transpose(), [[-1], [2], [4]]),
        (x.transpose(1, 0), [[-1], [2], [4]]),
        (x.transpose((0, 1)), [[-1, 2, 4]]),
        (x.T, [[-1], [2], [4]]),
    ):
        assert y.requires_grad
        np.testing.assert_allclose(y.data, expected)
    np.testing.assert_array_equal(x.argmax(axis=1), [2])
    assert not x.astype(np.float32).requires_grad and x.astype(np.float32).dtype == np.float32


def test_properties():
    x = Tensor(np.ones((2, 3), np.float32))
    assert (x.shape, x.ndim, x.size, x.dtype, x.device) == ((2, 3), 2, 6, np.float32, "cpu")
    assert x.grad is None and not x.requires_grad
    assert x.numpy() is x.data
    assert Tensor([1, 2]).dtype == int and Tensor(1.5).shape == ()
    data = np.ones(3)
    assert Tensor(data).data is data


def test_length_iteration_and_numbers():
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    assert len(x) == 2
    assert [row.data.tolist() for row in x] == [[1, 2], [3, 4]]
    sum(row[0] for row in x).backward()
    np.testing.assert_array_equal(x.grad, [[1, 0], [1, 0]])
    assert float(x[1, 0]) == x[1, 0].item() == 3.0 and int(x[1, 1]) == 4
    assert bool(Tensor(1)) and not Tensor([0.0])
    with pytest.raises(TypeError, match="a 0-d tensor has no length"):
        len(x[0, 0])
    with pytest.raises(TypeError, match="a 0-d tensor has no length"):
        iter(x[0, 0])
    with pytest.raises(ValueError, match=r"shape \(2, 2\) is ambiguous: use \.data\.any\(\)"):
        bool(x)
    with pytest.raises(ValueError):
        float(x)


def test_repr_shows_shape_dtype_device_and_whether_a_gradient_is_wanted():
    text = repr(Tensor(np.array([[1.0, 0.12345678]], np.float32), requires_grad=True))
    assert text == "Tensor([[1.    , 0.1235]], shape=(1, 2), float32, cpu, requires_grad=True)"
    assert repr(Tensor(3)) == "Tensor(3, shape=(), int64, cpu)"
    big = repr(Tensor(np.zeros((1000, 1000))))
    assert "..." in big and len(big) < 1000 and "shape=(1000, 1000)" in big


@pytest.mark.parametrize(
    "convert", [np.asarray, np.array, np.sum, np.exp, lambda x: np.stack([x, x]), np.float64]
)
def test_a_tensor_does_not_silently_become_an_array(convert):
    with pytest.raises(TypeError):
        convert(Tensor([1.0, 2.0]))


def test_the_refusal_says_what_to_use():
    with pytest.raises(TypeError, match=r"use \.data, \.numpy\(\) or minicaps\.ops"):
        np.asarray(Tensor([1.0]))


def test_tensors_are_keys_by_identity():
    a, b = leaf([1.0, 2.0]), leaf([1.0, 2.0])
    names = {a: "a", b: "b"}
    assert names[a] == "a" and names[b] == "b" and len({a, b, a}) == 2


# --- Copies, corruption, and the return values of ops --------------------------------------------


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))]
)
def test_a_copy_is_a_leaf_of_its_own(copied):
    a = leaf([1.0, 2.0])
    b = copied(a)
    (a * 2 + b * 3).sum().backward()
    np.testing.assert_array_equal(a.grad, [2, 2])
    np.testing.assert_array_equal(b.grad, [3, 3])
    assert not copied(Tensor(1.0)).requires_grad
    assert not copied(a * 2).requires_grad


def test_a_pullback_may_not_write_into_what_others_get_too():
    @op
    def doubled(x):
        def pullback(g):
            g *= 2
            return g

        return 2 * x, pullback

    with pytest.raises(ValueError, match="read-only"):
        doubled(leaf([1.0, 2.0])).backward(np.ones(2))


def test_detached_data_and_results_are_only_read():
    x = leaf([3.0, 4.0])
    with pytest.raises(ValueError, match="read-only"):
        x.detach().data += 1
    h = x * 1
    with pytest.raises(RuntimeError, match="data of a result cannot be replaced"):
        h.data = np.ones(2)
    x.data += 1  # a leaf's own data may change


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_a_matrix_is_an_array():
    a = Tensor(np.matrix([[1.0, 2.0], [3.0, 4.0]]))
    np.testing.assert_array_equal((a * a).data, [[1, 4], [9, 16]])
    np.testing.assert_array_equal(ops.multiply(a, np.matrix([[2.0, 2.0]])).data, [[2, 4], [6, 8]])


def test_ops_of_numbers_alone():
    assert ops.softmax(2.0).item() == 1 and ops.sum(3.0).item() == 3
    assert ops.exp(0.0).dtype == np.float64


def test_a_number_is_formatted_and_an_array_shown():
    assert f"{Tensor(0.25):.4f} {Tensor([0.5]):.1%}" == "0.2500 50.0%"
    assert f"{Tensor([1.0, 2.0])}" == repr(Tensor([1.0, 2.0]))


def test_what_an_op_returns_is_looked_at():
    @op
    def forgotten(x):
        return x * 1

    @op
    def several(x):
        return (x, x), lambda g: g

    with pytest.raises(TypeError, match="forgotten must return a tuple of its value and its pull"):
        forgotten(leaf([1.0, 2.0]))
    with pytest.raises(TypeError, match="value of several must be one array"):
        several(leaf(1.0))


def test_a_leaf_that_moves_stays_the_same_tensor_and_leaves_old_graphs():
    x = leaf([1.0, 2.0])
    y = (x * x).sum()
    x.move(np.array([1, 2], np.float32))
    with pytest.raises(RuntimeError, match="was replaced between the forward and the backward"):
        y.backward()
    (x * x).sum().backward()
    assert x.grad.dtype == np.float32
    np.testing.assert_array_equal(x.grad, [2, 4])
    for wrong in (np.ones(3), np.ones(2, int), np.ones(2, complex)):
        with pytest.raises(ValueError, match=r"a \(2,\) leaf cannot become"):
            x.move(wrong)
    for still in (Tensor(np.ones(2)), x * 1):
        with pytest.raises(TypeError, match="only a leaf"):
            still.move(np.ones(2))
