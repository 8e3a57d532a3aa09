"""Values of the ops, compared with NumPy, SciPy and manual calculations, and edge cases."""

import array
import itertools
import warnings

import numpy as np
import pytest
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st
from tensors import draw, leaf

from minicaps import Tensor, no_grad, ops
from minicaps.clustering import kmeans
from minicaps.gradcheck import check_gradients
from minicaps.ops.capsule import SQUASHES

pytestmark = pytest.mark.filterwarnings("error")
FLOATS = [np.float16, np.float32, np.float64]
INF = np.inf
SEEDS = st.integers(0, 2**32 - 1)
hypothetically = settings(max_examples=25, deadline=None, derandomize=True, database=None)


def gradient(function, data, dtype=np.float64):
    """Return ∂(sum of the values of `function`)/∂data."""
    x = leaf(data, dtype)
    function(x).sum().backward()
    assert x.grad.dtype == dtype
    return x.grad


def equal(found, expected, **tolerance):
    found = found.data if isinstance(found, Tensor) else found
    np.testing.assert_allclose(found, expected, **({"rtol": 1e-6, "atol": 1e-12} | tolerance))


# --- Arithmetic ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide", "maximum", "power"])
@pytest.mark.parametrize(
    "shapes", [((), ()), ((3,), (2, 3)), ((3, 1), (1, 4)), ((2, 1, 3), (4, 3))]
)
def test_binary_ops_broadcast_like_numpy(name, shapes):
    a, b = np.abs(draw(*shapes[0])) + 0.1, draw(*shapes[1], seed=1)
    equal(getattr(ops, name)(Tensor(a), Tensor(b)), getattr(np, name)(a, b))
    equal(getattr(ops, name)(Tensor(a), 2), getattr(np, name)(a, 2))
    equal(getattr(ops, name)(2, Tensor(b)), getattr(np, name)(2.0, b))


@pytest.mark.parametrize(
    ("name", "expected", "x"),
    [
        ("negative", np.negative, [-3, 0, 2]),
        ("exp", np.exp, [-700, -1, 0, 1, 700]),
        ("log", np.log, [1e-300, 0.5, 1, 1e300]),
        ("sqrt", np.sqrt, [1e-300, 0.25, 4, 1e300]),
        ("abs", np.abs, [-3, 0, 2]),
        ("relu", lambda x: np.maximum(x, 0), [-1e300, -1, 0, 1, 1e300]),
        ("sigmoid", scipy.special.expit, [-1e9, -30, -1, 0, 1, 30, 1e9]),
        ("tanh", np.tanh, [-1e9, -1, 0, 1, 1e9]),
        ("log_sigmoid", scipy.special.log_expit, [-1e9, -30, -1, 0, 1, 30, 1e9]),
    ],
)
def test_functions_of_one_number(name, expected, x):
    function, x = getattr(ops, name), np.array(x, float)
    equal(function(Tensor(x)), expected(x), atol=1e-15)
    equal(function(Tensor(x.reshape(-1, 1).T)), expected(x)[None], atol=1e-15)
    equal(function(Tensor(x[1])), expected(x)[1], atol=1e-15)
    with np.errstate(over="ignore", under="ignore"):
        assert np.isfinite(gradient(function, x)).all() or name in ("log", "sqrt")


def test_powers_at_the_edges():
    equal(gradient(lambda x: x**2, [-3.0, 0.0]), [-6, 0])
    equal(gradient(lambda x: x**0, [-3.0, 0.0]), [0, 0])
    equal(gradient(lambda x: x**1, [-3.0, 0.0]), [1, 1])
    equal(gradient(lambda x: x**-1, [-2.0, 0.5]), [-0.25, -4])
    equal(gradient(lambda x: x**3.0, [-2.0, 0.0]), [12, 0])
    exponents = np.array([0.0, 1.0, 2.0, 3.0])
    equal(Tensor(np.zeros(4)) ** exponents, [1, 0, 0, 0])
    equal(gradient(lambda x: x**exponents, np.zeros(4)), [0, 1, 0, 0])
    equal(gradient(lambda x: x**exponents, np.full(4, -2.0)), [0, 1, -4, 12])
    equal(gradient(lambda b: Tensor([0.0, 1.0, 2.0]) ** b, [2.0, 2.0, 2.0]), [0, 0, 4 * np.log(2)])
    equal(gradient(lambda b: 0**b, [2.0, 1.0]), [0, 0])
    equal(gradient(lambda b: 2**b, [3.0, -1.0]), np.log(2) * np.array([8, 0.5]))
    equal(gradient(lambda b: 0**b, [0.0, 0.5, INF]), [0, 0, 0])
    equal(gradient(lambda b: INF**b, [0.0, 1.0, -1.0, -INF]), [INF, INF, 0, 0])
    equal(gradient(lambda b: Tensor([0.5, 1.0, 0.5]) ** b, [INF, INF, 0.0]), [0, 0, np.log(0.5)])
    equal(gradient(lambda x: x**exponents, np.full(4, INF)), [0, 1, INF, INF])
    equal(gradient(lambda x: x ** np.array([-1.0, 0.5]), [INF, INF]), [0, 0])
    with np.errstate(divide="ignore"):  # the value and its slopes are infinite
        equal(gradient(lambda b: Tensor([0.0, 0.0]) ** b, [-1.0, -0.5]), [-INF, -INF])
    for dtype in FLOATS:
        equal(gradient(lambda b: 0**b, [0.0, 2.0], dtype), [0, 0])
        equal(gradient(lambda x: x ** np.float16([0, 1]), [INF, INF], dtype), [0, 1])


def test_slopes_at_kinks():
    equal(gradient(ops.relu, [-1.0, 0.0, 2.0]), [0, 0, 1])
    equal(gradient(ops.abs, [-1.0, 0.0, 2.0]), [-1, 0, 1])
    equal(gradient(lambda x: x.clip(-1, 2), [-2.0, -1.0, 0.0, 2.0, 3.0]), [0, 1, 1, 1, 0])
    equal(gradient(lambda x: x.clip(low=0), [-2.0, 0.0, 3.0]), [0, 1, 1])
    equal(gradient(lambda x: ops.maximum(x, 1), [0.0, 1.0, 3.0]), [0, 0.5, 1])
    a, b = leaf([1.0, 2.0, 3.0]), leaf([2.0, 2.0, 2.0])
    ops.maximum(a, b).sum().backward()
    equal(a.grad, [0, 0.5, 1])
    equal(b.grad, [1, 0.5, 0])


def test_clip_needs_a_limit():
    with pytest.raises(ValueError, match="clip needs low, high or both"):
        Tensor([1.0]).clip()


def test_where_chooses():
    condition = np.array([[True], [False]])
    a, b = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    y = ops.where(condition, a, b)
    equal(y, [[1, 2], [3, 4]])
    y.backward(np.array([[1.0, 2.0], [3.0, 4.0]]))
    equal(a.grad, [1, 2])
    equal(b.grad, [3, 4])
    equal(ops.where(Tensor(condition), 1.0, Tensor([5.0])), [[1], [5]])
    with pytest.raises(TypeError, match="where gives no gradient for argument 0"):
        ops.where(a, 1.0, 2.0).sum().backward()


def test_where_keeps_what_was_not_chosen_out_of_the_gradient():
    x = leaf([0.0, 4.0])
    safe = ops.where(x.data == 0, 1.0, x)
    ops.where(x.data == 0, 0.0, ops.log(safe)).sum().backward()
    equal(x.grad, [0, 0.25])


# --- Softmax and its relatives -------------------------------------------------------------------

AXES = st.tuples(st.lists(st.integers(1, 4), min_size=1, max_size=4), SEEDS)


@hypothetically
@given(AXES)
def test_softmax_and_relatives_are_those_of_scipy(drawn):
    shape, seed = drawn
    rng = np.random.default_rng(seed)
    x, axis = 10 * rng.normal(size=shape), int(rng.integers(-len(shape), len(shape)))
    equal(ops.softmax(Tensor(x), axis=axis), scipy.special.softmax(x, axis), rtol=1e-12)
    equal(ops.log_softmax(Tensor(x), axis=axis), scipy.special.log_softmax(x, axis), rtol=1e-12)
    for axes in (None, axis, tuple(range(axis % len(shape) + 1))):
        for keepdims in (False, True):
            found = ops.logsumexp(Tensor(x), axis=axes, keepdims=keepdims)
            expected = scipy.special.logsumexp(x, axis=axes, keepdims=keepdims)
            assert found.shape == np.shape(expected)
            equal(found, expected, rtol=1e-12)


@pytest.mark.parametrize("dtype", FLOATS)
def test_large_logits(dtype):
    x = np.array([[1000, 1000], [1000, 0], [-1000, -1000], [0, -1000]], dtype)
    half = np.log(2)
    equal(ops.softmax(Tensor(x)), [[0.5, 0.5], [1, 0], [0.5, 0.5], [1, 0]])
    equal(
        ops.log_softmax(Tensor(x)),
        [[-half, -half], [0, -1000], [-half, -half], [0, -1000]],
        rtol=1e-3,
    )
    equal(ops.logsumexp(Tensor(x), axis=1), [1000 + half, 1000, half - 1000, 0], rtol=1e-3)
    for function in (ops.softmax, ops.log_softmax, lambda x: ops.logsumexp(x, axis=1)):
        assert np.isfinite(gradient(function, x, dtype)).all()


def test_couplings_sum_to_1_over_the_parents_alone():
    logits = draw(2, 6, 3)  # (B, I, J)
    c = ops.softmax(Tensor(logits), axis=2).data
    equal(c.sum(axis=2), np.ones((2, 6)))
    assert np.abs(c.sum(axis=1) - 1).min() > 0.1


def test_probabilities_of_zero_are_minus_infinity():
    x = leaf([[-INF, -INF], [-INF, 1.0], [0.0, 0.0]])
    y = ops.logsumexp(x, axis=1)
    equal(y, [-INF, 1, np.log(2)])
    y.sum().backward()
    equal(x.grad, [[0, 0], [0, 1], [0.5, 0.5]])
    equal(ops.softmax(Tensor([-INF, 0.0])), [0, 1])
    equal(ops.log_softmax(Tensor([-INF, 0.0])), [-INF, 0])
    equal(gradient(ops.softmax, [-INF, 0.0]), [0, 0])


# --- Reductions and shapes -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sum", "mean", "max"])
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), (-1, -2), (0, 1, 2)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions(name, axis, keepdims):
    x = draw(2, 3, 4)
    found = getattr(ops, name)(Tensor(x), axis=axis, keepdims=keepdims)
    expected = getattr(x, name)(axis=axis, keepdims=keepdims)
    assert found.shape == np.shape(expected)
    equal(found, expected)


@pytest.mark.parametrize("name", ["sum", "mean", "max", "logsumexp"])
def test_reductions_of_one_number(name):
    x = leaf(3.0)
    y = getattr(ops, name)(x)
    y.backward()
    assert y.shape == () and y.data == 3 and x.grad == 1


@pytest.mark.parametrize("name", ["sum", "mean", "max", "logsumexp", "softmax", "length", "squash"])
@pytest.mark.parametrize(("shape", "axis"), [((2, 3), 2), ((2, 3), -3)])
def test_axes_out_of_range_are_errors(name, shape, axis):
    with pytest.raises(np.exceptions.AxisError, match=rf"axis {axis} is out of bounds"):
        getattr(ops, name)(Tensor(np.ones(shape)), axis=axis)


@pytest.mark.parametrize("axes", [(0, 2), (0, 0), (0,), (0, 1, 2), (-3, 0)])
def test_transpose_takes_every_axis_once(axes):
    with pytest.raises(ValueError, match=r"axis|axes"):
        ops.transpose(Tensor(np.ones((2, 3))), axes=axes)


@pytest.mark.parametrize("axis", [None, 0])
def test_equal_maxima_share_the_gradient(axis):
    equal(gradient(lambda x: x.max(axis=axis), [2.0, 2.0, 1.0]), [0.5, 0.5, 0])
    equal(gradient(lambda x: x.max(axis=axis), np.full(5, -1.0)), np.full(5, 0.2))
    equal(gradient(lambda x: x.max(axis=1), [[2.0, 2.0], [1.0, 3.0]]), [[0.5, 0.5], [0, 1]])


def test_reshape_transpose_expand_pad():
    x = draw(2, 3, 4)
    equal(ops.reshape(Tensor(x), shape=(4, -1)), x.reshape(4, 6))
    equal(ops.reshape(Tensor(x.T), shape=(4, 6)), x.T.reshape(4, 6))
    equal(ops.transpose(Tensor(x)), x.T)
    for axes in itertools.permutations(range(3)):
        equal(ops.transpose(Tensor(x), axes=axes), x.transpose(axes))
    equal(ops.transpose(Tensor(x), axes=(0, -1, -2)), x.transpose(0, 2, 1))
    equal(ops.expand(Tensor(x[:, :1]), shape=(5, 2, 3, 4)), np.broadcast_to(x[:, :1], (5, 2, 3, 4)))
    width = ((0, 0), (1, 2), (3, 0))
    equal(ops.pad(Tensor(x), width=width), np.pad(x, width))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concatenate_and_stack(axis):
    a, b = draw(2, 2), draw(2, 2, seed=1)
    equal(
        ops.concatenate([Tensor(a), Tensor(b), Tensor(a)], axis=axis),
        np.concatenate([a, b, a], axis),
    )
    equal(ops.stack([Tensor(a), Tensor(b)], axis=axis), np.stack([a, b], axis))
    x = leaf(a)
    ops.concatenate([x, b, x], axis=axis).sum().backward()
    equal(x.grad, np.full((2, 2), 2.0))


INDICES = {
    "number": 1,
    "negative": -1,
    "slice": slice(None, None, -2),
    "several": (0, slice(1, 3), None, -1),
    "ellipsis": (..., 0),
    "array": np.array([0, 0, 1]),
    "negative array": np.array([[-1, 0], [1, -2]]),
    "list": [1, 0, 1],
    "empty list": [],
    "tensor": Tensor([1, 1]),
    "mask": np.array([True, False]),
    "mask of all axes": draw(2, 3, 4) > 0,
    "list of booleans": [False, True],
    "two arrays": (np.array([0, 1, 0]), np.array([2, 2, 2])),
    "arrays around a slice": (np.array([0, 1]), slice(None), [3, 3]),
    "mask and array": (np.array([True, True]), np.array([0, 0])),
    "0-d array": np.array(1),
}


@pytest.mark.parametrize("kind", INDICES)
def test_indexing(kind):
    index, x = INDICES[kind], draw(2, 3, 4)
    plain = index.data if isinstance(index, Tensor) else index
    y = Tensor(x)[index]
    equal(y, x[plain])
    assert y.shape == x[plain].shape
    cotangent = np.asarray(draw(*y.shape, seed=1))
    expected = np.zeros_like(x)
    np.add.at(expected, plain, cotangent)
    tensor = leaf(x)
    tensor[index].backward(cotangent)
    equal(tensor.grad, expected)


def test_indices_out_of_range_are_errors():
    with pytest.raises(IndexError):
        Tensor([1.0, 2.0])[[2]]


# --- Products ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shapes",
    [
        ((3,), (3,)),
        ((3,), (3, 4)),
        ((2, 3), (3,)),
        ((2, 3), (3, 4)),
        ((5, 2, 3), (3, 4)),
        ((5, 2, 3), (5, 3, 4)),
        ((5, 1, 2, 3), (6, 3, 4)),
        ((3,), (5, 3, 4)),
        ((5, 2, 3), (3,)),
        ((0, 3), (3, 4)),
        ((5, 2, 0), (0, 4)),
        ((0, 2, 3), (3, 0)),
    ],
)
def test_matmul(shapes):
    a, b = draw(*shapes[0]), draw(*shapes[1], seed=1)
    x, y = leaf(a), leaf(b)
    product = x @ y
    equal(product, a @ b)
    product.sum().backward()
    assert x.grad.shape == a.shape and y.grad.shape == b.shape


@st.composite
def subscripts(draw):
    """Draw two or three operands and any output; every index has a different size."""
    letters = st.lists(st.sampled_from("abcd"), max_size=3, unique=True).map("".join)
    inputs = draw(st.lists(letters, min_size=1, max_size=3))
    used = sorted(set("".join(inputs)))
    output = draw(st.lists(st.sampled_from(used), unique=True) if used else st.just([]))
    return ",".join(inputs) + "->" + "".join(output)


@settings(hypothetically, max_examples=80)
@given(subscripts(), SEEDS)
def test_einsum_is_that_of_numpy(subscripts, seed):
    rng = np.random.default_rng(seed)
    sizes = {"a": 2, "b": 3, "c": 1, "d": 2}
    inputs = subscripts.partition("->")[0].split(",")
    arrays = [np.array(rng.normal(size=[sizes[c] for c in letters])) for letters in inputs]
    equal(ops.einsum(subscripts, *map(Tensor, arrays)), np.einsum(subscripts, *arrays))
    check_gradients(lambda *operands: ops.einsum(subscripts, *operands), *arrays)


@pytest.mark.parametrize(
    ("subscripts", "shapes", "message"),
    [
        ("ij,jk", [(2, 3), (3, 2)], "needs all indices and an arrow"),
        ("...i->i", [(2, 3)], "needs all indices and an arrow"),
        ("ij,jk->ik", [(2, 3)], "needs 2 operands, not 1"),
        ("ii->i", [(2, 2)], "an index occurs twice in 'ii'"),
        ("i->ii", [(2,)], "an index occurs twice in 'ii'"),
        ("ij->i", [(2,)], "'ij' of 'ij->i' does not match a 1-d array"),
        ("i->j", [(2,)], "has output indices that no operand has"),
        ("ij,jk->ik", [(2, 3), (4, 2)], "index 'j' of .* has both size 3 and 4"),
        ("ij,ij->", [(2, 3), (3, 2)], "index 'i' of .* has both size 2 and 3"),
        ("ij,ij->ij", [(1, 3), (2, 3)], "index 'i' of .* has both size 1 and 2"),
    ],
)
def test_einsum_refuses(subscripts, shapes, message):
    with pytest.raises(ValueError, match=message):
        ops.einsum(subscripts, *[Tensor(np.ones(s)) for s in shapes])


# --- Capsules ------------------------------------------------------------------------------------

# kind -> ℓ(n) and ℓ'(n), written directly from the formulas
CURVES = {
    "paper": (lambda n: n**2 / (1 + n**2), lambda n: 2 * n / (1 + n**2) ** 2),
    "half": (lambda n: n**2 / (0.5 + n**2), lambda n: n / (0.5 + n**2) ** 2),
    "tanh": (np.tanh, lambda n: 1 / np.cosh(n) ** 2),
    "exp": (lambda n: -np.expm1(-n), lambda n: np.exp(-n)),
    "rational": (lambda n: n / (1 + n), lambda n: 1 / (1 + n) ** 2),
    "none": (lambda n: n, lambda n: 1),
}
KINDS = list(CURVES)


def jacobian(function, x, dtype=np.float64):
    """Return ∂function(x)_i/∂x_j, row by row."""
    rows = []
    for cotangent in np.eye(len(x), dtype=dtype):
        s = leaf(x, dtype)
        function(s).backward(cotangent)
        rows.append(s.grad)
    return np.array(rows)


def test_all_kinds_of_squash_are_checked():
    assert set(KINDS) == {*SQUASHES, "none"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1e-3, 0.1, 0.5, 1.0, 3.0, 10.0, 100.0])
def test_squash_follows_its_curve(kind, n):
    new, slope = CURVES[kind]
    direction = np.array([2.0, -1.0, 2.0]) / 3
    s = n * direction
    equal(ops.squash(Tensor(s), kind=kind), new(n) * direction)
    outer = np.outer(direction, direction)
    expected = new(n) / n * np.eye(3) + (slope(n) - new(n) / n) * outer
    equal(jacobian(lambda s: ops.squash(s, kind=kind), s), expected, atol=1e-9)


def test_squash_by_hand():
    equal(ops.squash(Tensor([3.0, 4.0])), [0.576923, 0.769231], atol=1e-6)
    equal(jacobian(ops.squash, [3.0, 4.0]), np.array([[86.8, -57.6], [-57.6, 53.2]]) / 676)
    for n, expected in ((0.5, 0.2), (1, 0.5), (3, 0.9), (10, 0.990099)):
        equal(ops.length(ops.squash(Tensor([0.0, float(n)]))), expected, atol=1e-6)
    equal(ops.length(ops.squash(Tensor(np.full((2, 5, 3), 3**0.5)))), np.full((2, 5), 0.9))
    equal(ops.squash(Tensor([[3.0], [4.0]]), axis=0), [[0.576923], [0.769231]], atol=1e-6)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kind", KINDS)
def test_squash_at_the_zero_vector_is_exact(kind, dtype):
    expected = 0 if kind in ("paper", "half") else 1
    equal(ops.squash(Tensor(np.zeros(3, dtype)), kind=kind), np.zeros(3), atol=0)
    found = jacobian(lambda s: ops.squash(s, kind=kind), np.zeros(3), dtype)
    equal(found, expected * np.eye(3), atol=0)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kind", KINDS)
def test_squash_of_huge_and_tiny_vectors(kind, dtype):
    """The squares of these values would overflow or underflow."""
    info = np.finfo(dtype)
    for n in (float(info.max) / 4, float(info.tiny) * 4):
        s = np.array([0.6, 0.8]) * n
        v = ops.squash(Tensor(s.astype(dtype)), kind=kind)
        expected = CURVES[kind][0](min(n, 1e100)) if kind != "none" else n
        with np.errstate(over="ignore"):
            equal(v, np.array([0.6, 0.8]) * expected, rtol=1e-2, atol=float(info.tiny))
        assert np.isfinite(jacobian(lambda s: ops.squash(s, kind=kind), s, dtype)).all()


def test_squash_of_3e19_4e19_in_float32():
    s = leaf([3e19, 4e19], np.float32)
    v = ops.squash(s)
    v.sum().backward()
    equal(np.linalg.norm(v.data), 1)
    assert np.isfinite(s.grad).all()


def test_unknown_squash():
    with pytest.raises(ValueError, match=r"unknown squash 'swish': choose paper, half, .* or none"):
        ops.squash(Tensor([1.0]), kind="swish")


@pytest.mark.parametrize("dtype", FLOATS)
def test_length_and_direction(dtype):
    info = np.finfo(dtype)
    for n in (5.0, float(info.max) / 8, float(info.tiny) * 16):
        v = np.array([0.6, 0.8]) * n
        equal(ops.length(Tensor(v.astype(dtype))), n, rtol=1e-2)
        equal(ops.direction(Tensor(v.astype(dtype))), [0.6, 0.8], rtol=1e-2)
        equal(gradient(ops.length, v, dtype), [0.6, 0.8], rtol=1e-2)
    for function in (ops.length, ops.direction):
        equal(
            function(Tensor(np.zeros(2, dtype))), np.zeros_like(function(Tensor(np.zeros(2))).data)
        )
        equal(gradient(function, np.zeros(2), dtype), [0, 0], atol=0)
    equal(ops.length(Tensor([3.0, 4.0])), 5)
    equal(ops.length(Tensor([[3.0, 0.0], [4.0, 0.0]]), axis=0), [5, 0])
    equal(jacobian(ops.direction, [3.0, 4.0]), np.array([[16, -12], [-12, 9]]) / 125)


def test_one_zero_vector_among_others():
    s = np.array([[3.0, 4.0], [0.0, 0.0], [0.0, 2.0]])
    for kind in KINDS:
        v = ops.squash(Tensor(s), kind=kind).data
        equal(v[[0, 2]], [ops.squash(Tensor(row), kind=kind).data for row in s[[0, 2]]])
        equal(v[1], [0, 0])
        assert np.isfinite(gradient(lambda s, k=kind: ops.squash(s, kind=k), s)).all()


def test_mask_keeps_one_capsule():
    poses = leaf(draw(2, 10, 16))
    kept = ops.mask(poses, np.array([0, 2]))
    equal(kept.data[0, 0], poses.data[0, 0])
    equal(kept.data[1, 2], poses.data[1, 2])
    assert np.count_nonzero(kept.data.reshape(2, 160).any(axis=0)) == 32
    kept.sum().backward()
    expected = np.zeros((2, 10, 16))
    expected[0, 0] = expected[1, 2] = 1
    equal(poses.grad, expected)
    chosen = np.zeros((2, 10), bool)
    chosen[0, 0] = chosen[1, 2] = True
    equal(ops.mask(poses, chosen), kept.data)


# --- Losses --------------------------------------------------------------------------------------


def test_margin_loss_by_hand():
    lengths = Tensor([[0.95, 0.3, 0.05]])
    equal(ops.margin_loss(lengths, np.array([0])), 0.02)
    equal(ops.margin_loss(lengths, np.array([1])), 0.72125)
    equal(ops.margin_loss(lengths, np.array([[1, 1, 0]])), 0.36)
    equal(ops.margin_loss(Tensor([[0.5, 0.5]]), np.array([0])), 0.24)
    equal(ops.margin_loss(Tensor([[0.5, 0.5]]), np.array([0]), m_plus=0.8, m_minus=0.2), 0.135)
    equal(ops.margin_loss(Tensor([[0.5, 0.5]]), np.array([0]), down_weight=0.25), 0.2)


def test_margin_loss_where_nothing_is_learned():
    labels = np.arange(10)
    dead, saturated = leaf(np.zeros((10, 10))), Tensor(np.ones((10, 10)))
    equal(ops.margin_loss(dead, labels), 0.81)
    equal(ops.margin_loss(saturated, labels), 3.645)


def spread(activations, targets):
    return ops.spread_loss(activations, targets, margin=0.5)


def test_spread_loss_by_hand():
    activations = Tensor([[0.9, 0.5, 0.1]])
    equal(spread(activations, np.array([0])), 0.1**2)
    equal(spread(activations, np.array([1])), 0.9**2 + 0.1**2)
    equal(spread(activations, np.array([2])), 1.3**2 + 0.9**2)
    equal(ops.spread_loss(activations, np.array([0]), margin=0.2), 0)
    equal(ops.spread_loss(activations, np.array([0]), margin=0.9), 0.5**2 + 0.1**2)


def test_spread_loss_where_all_activations_are_equal_depends_on_the_margin_alone():
    for value in (0.0, 0.5, 1.0):
        activations = leaf(np.full((2, 10), value))
        loss = ops.spread_loss(activations, np.array([3, 0]), margin=0.2)
        equal(loss, 9 * 0.2**2)
        loss.backward()
        equal(activations.grad[0, 3], -9 * 0.2)  # there is a gradient even for a dead network
        equal(activations.grad.sum(), 0)


def test_spread_loss_refuses_several_labels_and_no_margin():
    activations, both = Tensor([[0.9, 0.5, 0.1]]), np.array([[1, 1, 0]])
    with pytest.raises(ValueError, match="one label for each sample"):
        spread(activations, both)
    for margin in (0, -0.1, np.nan):
        with pytest.raises(ValueError, match=f"the margin must be positive, not {margin}"):
            ops.spread_loss(activations, np.array([0]), margin=margin)


def test_losses_are_means_over_the_batch():
    x, labels = np.abs(draw(4, 3)), np.array([0, 2, 1, 1])
    twice, labels_twice = np.concatenate([x, x]), np.concatenate([labels, labels])
    for loss in (ops.margin_loss, ops.cross_entropy, ops.binary_cross_entropy):
        value = loss(Tensor(x), labels)
        assert value.shape == ()
        equal(loss(Tensor(twice), labels_twice), value.data)
        equal(loss(Tensor(x), np.eye(3)[labels]), value.data)
    equal(spread(Tensor(twice), labels_twice), spread(Tensor(x), labels).data)
    for loss in (ops.mse, ops.reconstruction_loss):
        equal(loss(Tensor(twice), twice[::-1]), loss(Tensor(x), x[::-1]).data, rtol=1)
        equal(loss(Tensor(twice), np.zeros((8, 3))), loss(Tensor(x), np.zeros((4, 3))).data)


def test_cross_entropies_against_their_definitions():
    x, labels = draw(4, 3), np.array([0, 2, 1, 1])
    p = scipy.special.softmax(x, axis=1)
    equal(ops.cross_entropy(Tensor(x), labels), -np.log(p[np.arange(4), labels]).mean())
    several = np.array([[1, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]])
    q = scipy.special.expit(x)
    expected = -np.where(several, np.log(q), np.log(1 - q)).mean()
    equal(ops.binary_cross_entropy(Tensor(x), several), expected)


@pytest.mark.parametrize("dtype", FLOATS)
def test_cross_entropies_of_large_logits(dtype):
    x = np.array([[1000, -1000]], dtype)
    for loss, wrong in ((ops.cross_entropy, 2000), (ops.binary_cross_entropy, 1000)):
        for label, expected in ((0, 0), (1, wrong)):
            equal(loss(Tensor(x), np.array([label])), expected)
            logits = leaf(x, dtype)
            loss(logits, np.array([label])).backward()
            assert np.isfinite(logits.grad).all()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", FLOATS)
def test_cross_entropies_where_a_class_is_impossible(dtype):
    """A logit of −∞ rules out the class; it costs nothing if the class is in fact absent."""
    rtol = 2e-3 if dtype == np.float16 else 1e-6
    logits = leaf([[0, -np.inf, np.log(3)]], dtype)
    loss = ops.cross_entropy(logits, np.array([2]))
    loss.backward()
    equal(loss, np.log(4 / 3), rtol=rtol)
    np.testing.assert_allclose(logits.grad, [[0.25, 0, -0.25]], rtol=rtol)
    logits = leaf([[np.inf, -np.inf, 0]], dtype)
    loss = ops.binary_cross_entropy(logits, np.array([[1, 0, 1]]))
    loss.backward()
    equal(loss, np.log(2) / 3, rtol=rtol)
    np.testing.assert_allclose(logits.grad, [[0, 0, -1 / 6]], rtol=rtol)


def test_reconstruction_loss_by_hand():
    for side, expected in ((28, 0.098), (36, 0.162)):
        black, half = np.zeros((2, side * side)), np.full((2, side * side), 0.5)
        equal(ops.reconstruction_loss(Tensor(half), black), expected)
    equal(ops.reconstruction_loss(Tensor([[1.0, 3.0]]), np.zeros((1, 2)), weight=0.1), 1)
    equal(ops.mse(Tensor([[1.0, 3.0]]), Tensor([[0.0, 1.0]])), 2.5)


LABELLED = [ops.margin_loss, spread, ops.cross_entropy, ops.binary_cross_entropy]


@pytest.mark.parametrize("loss", LABELLED)
@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (np.array([0, 10]), "labels must be from 0 to 9, but these are from 0 to 10"),
        (np.array([-1, 3]), "labels must be from 0 to 9, but these are from -1 to 3"),
        (np.array([0, 1, 2]), r"shape \(2,\) or .* \(2, 10\), not int64 of shape \(3,\)"),
        (np.array([0.0, 1.0]), "must be integer labels .* not float64"),
        (np.zeros((2, 9)), r"not float64 of shape \(2, 9\)"),
    ],
)
def test_labels_must_fit(loss, targets, message):
    with pytest.raises(ValueError, match=message):
        loss(Tensor(np.full((2, 10), 0.5)), targets)


@pytest.mark.parametrize("loss", LABELLED)
def test_labels_must_be_an_array(loss):
    with pytest.raises(TypeError, match=r"list"):
        loss(Tensor(np.full((2, 10), 0.5)), [0, 1])
    equal(
        loss(Tensor(np.full((2, 10), 0.5)), Tensor([0, 1])),
        loss(np.full((2, 10), 0.5), np.array([0, 1])).data,
    )


# --- Batches of no samples and of one ------------------------------------------------------------

IMAGES = {
    "conv2d": lambda x: ops.conv2d(x, Tensor(draw(2, 3, 3, 3)), padding=1),
    "conv2d_plain": lambda x: ops.conv2d_plain(x, Tensor(draw(2, 3, 3, 3)), padding=1),
    "avg_pool2d": ops.avg_pool2d,
    "max_pool2d": ops.max_pool2d,
    "global_avg_pool": ops.global_avg_pool,
    "relu": ops.relu,
    "softmax": lambda x: ops.softmax(x, axis=1),
    "log_softmax": ops.log_softmax,
    "logsumexp": lambda x: ops.logsumexp(x, axis=(1, 2)),
    "max": lambda x: ops.max(x, axis=1),
    "mean": lambda x: ops.mean(x, axis=-1),
    "squash": ops.squash,
    "length": ops.length,
    "direction": lambda x: ops.direction(x, axis=1),
    "mask": lambda x: ops.mask(x.reshape(len(x), 9, 12), np.zeros(len(x), int)),
    "einsum": lambda x: ops.einsum("bchw,dc->bdhw", x, Tensor(draw(2, 3))),
    "matmul": lambda x: x @ Tensor(draw(6, 2)),
    "concatenate": lambda x: ops.concatenate([x, x], axis=1),
    "stack": lambda x: ops.stack([x, x], axis=1),
    "pad": lambda x: ops.pad(x, width=((0, 0), (1, 1), (0, 0), (0, 2))),
    "getitem": lambda x: x[:, [0, 0, 1], ::-1],
    "transpose": lambda x: x.T.transpose(3, 2, 1, 0),
}


@pytest.mark.parametrize("name", IMAGES)
def test_samples_of_a_batch_are_treated_alone(name):
    """An empty batch works, and three samples give the same results as three batches of one."""
    function, x = IMAGES[name], draw(3, 3, 6, 6)
    batch = leaf(x)
    together = function(batch)
    cotangent = draw(*together.shape)
    together.backward(cotangent)
    for n in range(3):
        one = leaf(x[n : n + 1])
        y = function(one)
        assert y.shape[0] == 1
        equal(y.data[0], together.data[n])
        y.backward(cotangent[n : n + 1])
        equal(one.grad[0], batch.grad[n])
    none = leaf(x[:0])
    y = function(none)
    assert y.shape == (0, *together.shape[1:])
    y.sum().backward()
    assert none.grad.shape == none.shape


def test_no_graph_means_no_protection():
    with no_grad():
        y = ops.exp(leaf([0.0]))
    y.data += 1
    equal(y, [2])


# --- Tails, edges, and dtypes that silently lose precision -------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sigmoids_keep_their_digits_in_the_tails(dtype):
    x = np.array([-80, -40, -20, -17, -1, 0, 1, 17, 20, 40, 80], dtype)
    exact = scipy.special.expit(x.astype(np.longdouble))
    slope = exact * scipy.special.expit(-x.astype(np.longdouble))
    eps = 4 * np.finfo(dtype).eps

    def value_and_slope(function):
        t = Tensor(x, requires_grad=True)
        y = function(t)
        y.backward(np.ones_like(x))
        return y.data, t.grad

    for found, right in zip(value_and_slope(ops.sigmoid), (exact, slope), strict=True):
        np.testing.assert_allclose(found, right.astype(dtype), rtol=eps, atol=0)
    falling = scipy.special.expit(-x.astype(np.longdouble)).astype(dtype)
    np.testing.assert_allclose(value_and_slope(ops.log_sigmoid)[1], falling, rtol=eps)
    tanh_slope = value_and_slope(lambda t: ops.tanh(t * 0.5))[1]
    np.testing.assert_allclose(tanh_slope, (2 * slope).astype(dtype), rtol=eps)
    certain = ops.binary_cross_entropy(Tensor(np.array([[20]], dtype)), np.array([[1]]))
    assert certain.item() == pytest.approx(np.log1p(np.exp(-20.0)), rel=1e-6)


def test_integers_do_not_wrap_around():
    bytes_ = np.array([3, 0, 1], np.uint8)
    exact = bytes_.astype(float)
    for function in (ops.softmax, ops.log_softmax, ops.logsumexp, ops.log_sigmoid):
        np.testing.assert_array_equal(function(bytes_).data, function(exact).data)
    ends = np.array([127, -128], np.int8)
    np.testing.assert_array_equal(ops.softmax(ends).data, [1, scipy.special.softmax(ends * 1.0)[1]])
    assert ops.length(np.array([-128, 0], np.int8)).item() == 128
    assert ops.squash(np.array([3, 4])).data == pytest.approx([0.576923, 0.769231], abs=1e-6)


def test_half_precision_means_do_not_overflow():
    x = np.full(1000, 100, np.float16)
    assert ops.mean(Tensor(x)).item() == 100
    assert ops.mse(Tensor(x), np.zeros_like(x) + 90).item() == 100


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("kind", ["paper", "half", "tanh", "exp", "rational"])
def test_squash_of_vectors_longer_than_a_number_can_be(dtype, kind):
    large = np.finfo(dtype).max * dtype(0.9)
    s = Tensor(np.array([large, large]), requires_grad=True)
    v = ops.squash(s, kind=kind)
    np.testing.assert_allclose(v.data, np.sqrt(0.5), rtol=2 * np.finfo(dtype).eps)
    v.sum().backward()
    assert np.isfinite(s.grad).all()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_direction_of_the_shortest_vectors_has_a_finite_gradient(dtype):
    s = Tensor(np.array([np.finfo(dtype).smallest_subnormal, 0]), requires_grad=True)
    ops.direction(s).sum().backward()
    assert np.isfinite(s.grad).all()


def test_losses_refuse_what_would_broadcast():
    with pytest.raises(ValueError, match=r"must have the same shape, not \(3, 1\) and \(3,\)"):
        ops.mse(Tensor(np.ones((3, 1))), np.ones(3))
    with pytest.raises(ValueError, match="must have the same shape"):
        ops.reconstruction_loss(Tensor(np.ones((4, 1, 28, 28))), np.ones((4, 28, 28)))


def test_targets_that_are_not_zeros_and_ones_are_refused():
    lengths = Tensor(np.array([[0.95, 0.3, 0.05]]))
    for wrong in ([[2, 0, 0]], [[255, 0, 0]], [[-1, 0, 0]], [[0.5, 0, 0]]):
        for loss in (ops.margin_loss, ops.cross_entropy, ops.binary_cross_entropy):
            with pytest.raises(ValueError, match="must be zeros and ones"):
                loss(lengths, np.array(wrong))
    with pytest.raises(ValueError, match=r"\(B, J\), not \(3,\)"):
        ops.margin_loss(lengths[0], np.array([1, 0, 0]))


@pytest.mark.parametrize(
    "keep", [np.array([3, -1]), np.array([[0], [1]]), np.array([0, 1, 2, 0]), np.array([0.0, 1.0])]
)
def test_mask_refuses_what_names_no_capsule(keep):
    with pytest.raises(
        ValueError, match=r"labels must be from 0 to 2|targets must be integer labels"
    ):
        ops.mask(Tensor(np.ones((2, 3, 4))), keep)


def test_a_power_of_zero_is_flat_everywhere():
    x = Tensor(np.array([0.0, 2.0, np.inf]), requires_grad=True)
    (x**0).sum().backward()
    np.testing.assert_array_equal(x.grad, 0)


@pytest.mark.parametrize("index", [((0, 0, 1),), (range(0, 2),), array.array("i", [0, 0, 1])])
def test_any_sequence_is_an_index_and_repeats_add_up(index):
    x = Tensor(np.arange(3.0), requires_grad=True)
    y = x[index]
    np.testing.assert_array_equal(y.data, x.data[index])
    y.sum().backward()
    expected = np.bincount(np.arange(3)[index], minlength=3)
    np.testing.assert_array_equal(x.grad, expected)


def test_the_mean_of_nothing_has_a_gradient():
    nothing = Tensor(np.zeros((0, 3)), requires_grad=True)
    with np.errstate(invalid="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # in NumPy, this mean is NaN
        ops.mean(nothing).backward()
    assert nothing.grad.shape == (0, 3)


@pytest.mark.parametrize(
    "of", [ops.margin_loss, spread, ops.cross_entropy, ops.binary_cross_entropy]
)
def test_the_loss_of_no_samples_is_0(of):
    nothing = Tensor(np.zeros((0, 3)), requires_grad=True)
    loss = of(nothing, np.zeros(0, int))
    loss.backward()
    assert loss.item() == 0 and nothing.grad.shape == (0, 3)


@pytest.mark.parametrize("of", [ops.mse, ops.reconstruction_loss])
def test_the_error_of_no_pictures_is_0(of):
    nothing = Tensor(np.zeros((0, 3)), requires_grad=True)
    error = of(nothing, Tensor(np.zeros((0, 3))))
    error.backward()
    assert error.item() == 0 and nothing.grad.shape == (0, 3)


def test_numpys_booleans_are_an_index():
    x = Tensor(np.ones((3, 4)))
    assert x[np.True_].shape == (1, 3, 4) and x[np.False_].shape == (0, 3, 4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_shortest_vectors_count_as_zero(dtype):
    least = np.finfo(dtype).smallest_subnormal
    v = np.array([[least] * 4, [0] * 4, [4 * least] * 4], dtype)
    assert not ops.length(Tensor(v[:2])).data.any()
    assert not ops.direction(Tensor(v[:2])).data.any()
    np.testing.assert_allclose(ops.direction(Tensor(v[2:])).data, 0.5)


# ---- numbers of narrow types


U8 = np.uint8


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (lambda: ops.subtract(np.array([0, 3], U8), np.array([16, 1], U8)), [-16, 2]),
        (lambda: ops.subtract(np.array([True]), np.array([False])), [1]),
        (lambda: ops.negative(np.array([3, 0], U8)), [-3, 0]),
        (lambda: 5 - Tensor(np.array([9], U8)), [-4]),
        (lambda: ops.mse(np.array([0], U8), np.array([16], U8)), 256),
        (lambda: ops.mse(np.array([0, 20, 200], U8), np.array([20, 0, 10], U8)), 12300),
        (
            lambda: ops.reconstruction_loss(np.zeros((1, 2), U8), np.full((1, 2), 3, U8), weight=1),
            18,
        ),
        (lambda: ops.spread_loss(np.array([[1, 0, 1]], U8), np.array([1]), margin=0.9), 2 * 1.9**2),
        (
            lambda: ops.binary_cross_entropy(np.array([[1, 2]], U8), np.array([[0, 1]])),
            (np.log1p(np.e) + np.log1p(np.exp(-2))) / 2,
        ),
    ],
)
def test_unsigned_integers_do_not_wrap(value, expected):
    np.testing.assert_allclose(value().data, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (lambda x: ops.cross_entropy(x((5000, 2)) + np.float16([0, 20]), np.zeros(5000, int)), 20),
        (lambda x: ops.margin_loss(x((40000, 10)) + 1, np.zeros(40000, int)), 3.645),
        (
            lambda x: ops.spread_loss(x((40000, 10)), np.zeros(40000, int), margin=0.9),
            9 * 0.81,
        ),
        (lambda x: ops.logsumexp(x(65536)), np.log(65536)),
    ],
)
def test_many_terms_do_not_overflow_16_bits(value, expected):
    x = []

    def zeros(shape):
        x.append(Tensor(np.zeros(shape, np.float16), requires_grad=True))
        return x[0]

    loss = value(zeros)
    assert loss.dtype == np.float16
    np.testing.assert_allclose(loss.data, expected, rtol=2e-3)
    loss.backward()
    assert np.isfinite(x[0].grad).all()


def test_many_equal_maxima_share_the_gradient_in_16_bits():
    x = Tensor(np.zeros(70000, np.float16), requires_grad=True)
    ops.max(x).backward()
    np.testing.assert_allclose(x.grad, 1 / 70000, rtol=2e-3)


@pytest.mark.parametrize("use", [Tensor, ops.exp, lambda x: kmeans(x, 2)])
def test_a_masked_array_is_refused(use):
    with pytest.raises(TypeError, match="would lose its mask"):
        use(np.ma.array([[1.0], [2.0], [1e9], [3.0]], mask=[[0], [0], [1], [0]]))


def test_a_second_where_keeps_an_infinite_slope_out():
    """As the docstring of `where` advises: e^100 overflows in float32 and is not taken."""
    x = Tensor(np.float32([100, -1]), requires_grad=True)
    safe = ops.where(x.data > 0, 0, x)
    ops.where(x.data > 0, 1 + x, ops.exp(safe)).sum().backward()
    np.testing.assert_allclose(x.grad, [1, np.exp(-1)], rtol=1e-6)
