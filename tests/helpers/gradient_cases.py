"""Functions of tensors for every op, with inputs at which central differences are reliable.

A case is a builder. `build(shape, rng)` takes any shape of up to four sizes (it uses as many as it
needs) and a random generator, and returns a function of tensors and its float64 arrays. The arrays
stay away from kinks. Several tests use this table: gradients, dtypes, memory, and the device.

A new op needs a builder here, under `@case` with the op's name:

    @case("tanh")
    def tanh(shape, rng):
        return ops.tanh, [normal(rng, shape)]
"""

from collections.abc import Callable
from dataclasses import dataclass
from unittest.mock import patch

import numpy as np

from minicaps import Tensor, nn, ops, routing
from minicaps.backend import array_module
from minicaps.routing.em import em


@dataclass(frozen=True)
class Case:
    """One way to call an op.

    op: the name in the registry; a function composed of ops has its own name.
    repeats: whether entries of the arrays may be equal, which is not the case if ties are kinks.
    """

    op: str
    name: str
    build: Callable
    repeats: bool

    def __str__(self):
        return self.name


CASES = []


def case(op, name=None, *, repeats=True):
    """Add a builder to the table."""

    def enter(build):
        CASES.append(Case(op, name or build.__name__, build, repeats))
        return build

    return enter


# --- Inputs --------------------------------------------------------------------------------------


def normal(rng, shape):
    return np.array(rng.normal(size=shape))


def positive(rng, shape):
    return np.array(rng.uniform(0.3, 2.0, shape))


def nonzero(rng, shape):
    return np.array(positive(rng, shape) * rng.choice([-1, 1], shape))


def away_from(kinks, draw, margin=0.02):
    """Redraw the entries that are near a kink."""
    x = np.array(draw())
    while (near := np.min([abs(x - k) for k in kinks], axis=0) < margin).any():
        x = np.where(near, draw(), x)
    return x


def distinct(rng, shape):
    """Return numbers around 0 that are 0.1 apart, in random order."""
    n = int(np.prod(shape))
    return np.array((rng.permutation(n).reshape(shape) - n // 2) / 10)


def vectors(rng, shape):
    """Draw vectors along the last axis: short, medium and long ones, none of them near 0."""
    v = normal(rng, shape)
    lengths = rng.choice([0.2, 1.0, 8.0], shape[:-1]) * rng.uniform(0.7, 1.3, shape[:-1])
    return v / np.linalg.norm(v, axis=-1, keepdims=True) * lengths[..., None]


def beside(tensor, constant):
    """Copy a constant to the device of `tensor`."""
    return array_module(tensor.data).asarray(constant)


def at_least(shape, ndim):
    return (*shape, *(2, 3, 2, 3)[len(shape) : ndim])


def exactly(shape, ndim):
    return at_least(shape, ndim)[:ndim]


def broadcastable(rng, shape):
    """Draw a shape that broadcasts to `shape`, with some sizes 1 and some leading axes removed."""
    sizes = [int(rng.choice([n, n, 1])) for n in shape]
    return tuple(sizes[rng.integers(len(shape) + 1) :]) if rng.random() < 0.3 else tuple(sizes)


def any_axis(rng, ndim):
    return int(rng.integers(-ndim, ndim))


def any_axes(rng, ndim):
    """Draw None, one axis or several axes for a reduction."""
    some = tuple(int(a) for a in rng.permutation(ndim)[: rng.integers(1, ndim + 1)])
    return [None, any_axis(rng, ndim), some][rng.integers(3)]


# --- Arithmetic ----------------------------------------------------------------------------------


def _binary_cases(name, left, right):
    function = getattr(ops, name)

    @case(name, f"{name}_broadcasting")
    def broadcasting(shape, rng):
        shapes = broadcastable(rng, shape), broadcastable(rng, shape)
        return function, [left(rng, shapes[0]), right(rng, shapes[1])]

    @case(name, f"{name}_numbers")
    def numbers(shape, rng):
        a, b = float(left(rng, ())), float(right(rng, ()))
        return lambda x, y: function(x, b) * function(a, y), [left(rng, shape), right(rng, shape)]


_binary_cases("add", normal, normal)
_binary_cases("subtract", normal, normal)
_binary_cases("multiply", normal, nonzero)
_binary_cases("divide", nonzero, nonzero)
_binary_cases("power", positive, nonzero)


@case("power")
def power_of_integers(shape, rng):
    exponents = np.array(rng.integers(-2, 4, shape), float)
    exponents.flat[0] = 3

    def function(x):
        return x**2 + x**-1 + x**0 + x ** beside(x, exponents).astype(x.dtype)

    return function, [nonzero(rng, shape)]


@case("power")
def power_of_a_number(shape, rng):
    return lambda x: 2**x * 3.0**x, [normal(rng, shape)]


def _unary_case(name, draw, **static):
    @case(name, name)
    def build(shape, rng):
        return lambda x: getattr(ops, name)(x, **static), [draw(rng, shape)]


for _name in ("negative", "exp", "cos", "sigmoid", "tanh", "log_sigmoid"):
    _unary_case(_name, normal)
_unary_case("log", positive)
_unary_case("sqrt", positive)
_unary_case("abs", nonzero)
_unary_case("relu", nonzero)


@case("maximum")
def maximum(shape, rng):
    a = np.array(rng.integers(-9, 9, broadcastable(rng, shape)) / 5)
    b = np.array(rng.integers(-9, 9, shape) / 5 + 0.1)
    return lambda a, b: ops.maximum(a, b) + ops.maximum(0.05, a) - ops.maximum(b, 0), [a, b]


@case("clip")
def clip(shape, rng):
    x = away_from((-0.5, 0.8), lambda: rng.normal(size=shape))
    limits = [{"low": -0.5}, {"high": 0.8}, {"low": -0.5, "high": 0.8}][rng.integers(3)]
    return lambda x: ops.clip(x, **limits), [x]


@case("where")
def where(shape, rng):
    condition = np.array(rng.random(broadcastable(rng, shape)) < 0.5)
    condition.flat[0] = True
    condition.flat[1:2] = False

    def function(a, b):
        chosen = beside(a, condition)
        return ops.where(chosen, a, b) + ops.where(chosen, 0.5, b)

    return function, [normal(rng, broadcastable(rng, shape)), normal(rng, shape)]


# --- Softmax and reductions ----------------------------------------------------------------------


def _softmax_case(name):
    @case(name, name)
    def build(shape, rng):
        shape = at_least(shape, 1)
        axis = any_axis(rng, len(shape))
        return lambda x: getattr(ops, name)(x, axis=axis), [3 * normal(rng, shape)]


def _reduction_case(name, draw, repeats=True):
    @case(name, name, repeats=repeats)
    def build(shape, rng):
        options = {"axis": None, "keepdims": bool(rng.random() < 0.5)}
        if shape:
            options["axis"] = any_axes(rng, len(shape))
        return lambda x: getattr(ops, name)(x, **options), [draw(rng, shape)]


_softmax_case("softmax")
_softmax_case("log_softmax")
_reduction_case("sum", normal)
_reduction_case("mean", normal)
_reduction_case("max", distinct, repeats=False)
_reduction_case("logsumexp", normal)


@case("total")
def total(shape, rng):
    return ops.total, [normal(rng, shape)]


# --- Shapes --------------------------------------------------------------------------------------


@case("reshape")
def reshape(shape, rng):
    new = [(-1,), shape[::-1], (1, *shape, 1), (*shape[:-2], -1)][rng.integers(4)]
    return lambda x: ops.reshape(x, shape=new), [normal(rng, shape)]


@case("transpose")
def transpose(shape, rng):
    axes = [int(a) - len(shape) * int(rng.integers(2)) for a in rng.permutation(len(shape))]
    return lambda x: ops.transpose(x, axes=axes) * ops.transpose(x, axes=axes), [normal(rng, shape)]


@case("transpose")
def transpose_reversed(shape, rng):
    return lambda x: x.T, [normal(rng, shape)]


@case("expand")
def expand(shape, rng):
    x = normal(rng, broadcastable(rng, shape))
    return lambda x: ops.expand(x, shape=(2, *shape)), [x]


@case("_concatenate")
def concatenate(shape, rng):
    shape = at_least(shape, 1)
    axis = any_axis(rng, len(shape))
    longer = list(shape)
    longer[axis] += 2
    arrays = [normal(rng, s) for s in (shape, longer, shape)]
    return lambda *parts: ops.concatenate(parts, axis=axis), arrays


@case("_concatenate", "stack")
def stack(shape, rng):
    axis = any_axis(rng, len(shape) + 1)
    return lambda *parts: ops.stack(parts, axis=axis), [normal(rng, shape) for _ in range(3)]


@case("pad")
def pad(shape, rng):
    shape = at_least(shape, 1)
    width = [tuple(rng.integers(0, 3, 2).tolist()) for _ in shape]
    return lambda x: ops.pad(x, width=width), [normal(rng, shape)]


@case("_getitem")
def getitem_slices(shape, rng):
    steps = [1, -1, 2, -2]
    index = [slice(None, None, int(rng.choice(steps))) for _ in at_least(shape, 1)]
    index[rng.integers(len(index))] = 0
    index.insert(rng.integers(len(index) + 1), [None, Ellipsis][rng.integers(2)])
    return lambda x: x[tuple(index)], [normal(rng, at_least(shape, 1))]


@case("_getitem")
def getitem_repeats(shape, rng):
    shape = at_least(shape, 1)
    rows = rng.integers(-shape[0], shape[0], 5)
    return lambda x: x[rows] * x[[0, 0, -1, 0, 0]] + x[Tensor(rows[::-1])], [normal(rng, shape)]


@case("_getitem")
def getitem_mask(shape, rng):
    shape = at_least(shape, 1)
    inside = rng.random(shape) < 0.7
    inside.flat[0] = True
    return lambda x: x[inside], [normal(rng, shape)]


@case("_getitem")
def getitem_arrays_and_slices(shape, rng):
    shape = at_least(shape, 3)
    first, last = (rng.integers(0, shape[axis], (2, 3)) for axis in (0, 2))
    return lambda x: x[first, ::-1, last] + x[first, 0:1, 0], [normal(rng, shape)]


# --- Products ------------------------------------------------------------------------------------


def _matmul_case(name, left, right):
    @case("matmul", f"matmul_{name}")
    def build(shape, rng):
        sizes = dict(zip("ijknm", (*shape, 2, 3, 2, 1, 3), strict=False)) | {"1": 1}
        return ops.matmul, [normal(rng, [sizes[c] for c in axes]) for axes in (left, right)]


_matmul_case("vectors", "i", "i")
_matmul_case("vector_matrix", "i", "ij")
_matmul_case("matrix_vector", "ij", "j")
_matmul_case("matrices", "ij", "jk")
_matmul_case("batch_and_matrix", "nij", "jk")
_matmul_case("matrix_and_batch", "ij", "njk")
_matmul_case("vector_and_batch", "i", "nij")
_matmul_case("batch_and_vector", "nmij", "j")
_matmul_case("batches", "nij", "njk")
_matmul_case("broadcast_batches", "n1ij", "mjk")


def _einsum_case(subscripts):
    @case("_einsum", f"einsum_{subscripts}")
    def build(shape, rng):
        inputs = subscripts.partition("->")[0].split(",")
        sizes = dict(zip("ijkldn", (*shape, 2, 3, 2, 1, 2, 3), strict=False)) | {"b": 2}
        arrays = [normal(rng, [sizes[c] for c in letters]) for letters in inputs]
        return lambda *operands: ops.einsum(subscripts, *operands), arrays


for _subscripts in (
    "ij,jk->ik",
    "bij,bijd->bjd",
    "bijd,bjd->bij",
    "bin,ijnd->bijd",
    "i,j->ji",
    "ij,ij->",
    "ij->ji",
    "ij->j",
    "ij,kl->jk",
    "ijk,kl,ld->di",
    "ij,j,bj->b",
    ",ij->ij",
):
    _einsum_case(_subscripts)


# --- Images --------------------------------------------------------------------------------------


def conv2d_by_patches(*tensors, **options):
    with patch.object(ops.conv, "fits", lambda *sizes: False):
        return ops.conv2d(*tensors, **options)


def conv2d_by_spectra(*tensors, **options):
    with patch.object(ops.conv, "worthwhile", lambda *sizes: True):
        return ops.conv2d(*tensors, **options)


def _convolution_case(op, name, function, arguments):
    @case(op, name)
    def build(shape, rng):
        batch, channels, height, width = exactly(shape, 4)
        kernel = (2, channels, *rng.integers(1, 4, 2))
        options = {"stride": int(rng.integers(1, 4)), "padding": int(rng.integers(0, 3))}
        options["relu"] = bool(rng.integers(2))
        image = (batch, channels, height + 2, width + 2)  # a 3×3 kernel fits
        arrays = [normal(rng, image), normal(rng, kernel), normal(rng, 2)]
        return lambda *args: function(*args, **options), arrays[:arguments]


_convolution_case("conv2d", "conv2d", ops.conv2d, 2)
_convolution_case("conv2d", "conv2d_with_bias", ops.conv2d, 3)
_convolution_case("conv2d", "conv2d_by_patches", conv2d_by_patches, 3)
_convolution_case("conv2d", "conv2d_by_spectra", conv2d_by_spectra, 3)
_convolution_case("_windows", "conv2d_plain", ops.conv2d_plain, 2)
_convolution_case("_windows", "conv2d_plain_with_bias", ops.conv2d_plain, 3)


def _pooling_case(name, draw, repeats=True):
    @case(name, name, repeats=repeats)
    def build(shape, rng):
        batch, channels, height, width = exactly(shape, 4)
        images = draw(rng, (batch, channels, height + 2, width + 2))
        windows = [{}, {"window": 3}, {"window": (3, 2), "stride": 1}, {"window": 2, "stride": 3}]
        options = windows[rng.integers(4)]
        return lambda x: getattr(ops, name)(x, **options), [images]


_pooling_case("avg_pool2d", normal)
_pooling_case("max_pool2d", distinct, repeats=False)


@case("global_avg_pool")
def global_avg_pool(shape, rng):
    return ops.global_avg_pool, [normal(rng, exactly(shape, 4))]


# --- Capsules and losses -------------------------------------------------------------------------


def _vector_case(op, name, **static):
    @case(op, name)
    def build(shape, rng):
        shape = at_least(shape, 1)
        axis = any_axis(rng, len(shape))
        v = np.moveaxis(vectors(rng, shape), -1, axis)
        return lambda v: getattr(ops, op)(v, axis=axis, **static), [v]


_vector_case("length", "length")
_vector_case("direction", "direction")
for _kind in ("paper", "half", "tanh", "exp", "rational", "none"):
    _vector_case("squash", f"squash_{_kind}", kind=_kind)


@case("mask")
def mask(shape, rng):
    shape = exactly(shape, 3)
    keep = rng.integers(0, shape[1], shape[0])
    several = rng.random(shape[:2]) < 0.5

    def function(poses):
        return ops.mask(poses, beside(poses, keep)) + 2 * ops.mask(poses, beside(poses, several))

    return function, [normal(rng, shape)]


def _targets(rng, shape):
    """Draw labels, or zeros and ones for multi-label data."""
    return [rng.integers(0, shape[1], shape[0]), rng.integers(0, 2, shape)][rng.integers(2)]


@case("margin_loss")
def margin_loss(shape, rng):
    shape = exactly(shape, 2)
    lengths = away_from((0.1, 0.8), lambda: rng.uniform(0, 1, shape))
    targets = _targets(rng, shape)
    return lambda v: ops.margin_loss(v, beside(v, targets), m_plus=0.8), [lengths]


@case("spread_loss")
def spread_loss(shape, rng):
    shape = exactly(shape, 2)
    activations, labels = rng.uniform(0, 1, shape), rng.integers(0, shape[1], shape[0])
    return lambda a: ops.spread_loss(a, beside(a, labels), margin=0.5), [activations]


@case("cross_entropy")
def cross_entropy(shape, rng):
    shape = exactly(shape, 2)
    targets = _targets(rng, shape)
    return lambda x: ops.cross_entropy(x, beside(x, targets)), [2 * normal(rng, shape)]


@case("binary_cross_entropy")
def binary_cross_entropy(shape, rng):
    shape = exactly(shape, 2)
    targets = _targets(rng, shape)
    return lambda x: ops.binary_cross_entropy(x, beside(x, targets)), [2 * normal(rng, shape)]


@case("mse")
def mse(shape, rng):
    return ops.mse, [normal(rng, shape), normal(rng, shape)]


@case("reconstruction_loss")
def reconstruction_loss(shape, rng):
    shape = at_least(shape, 1)
    return lambda x, y: ops.reconstruction_loss(x, y, weight=0.1), [
        normal(rng, shape),
        normal(rng, shape),
    ]


# --- Routing -------------------------------------------------------------------------------------

GRID = routing.couplings.Windows(size=(2, 3), kernel=2, stride=1, types=2)


def votes_in_windows(shape, rng):
    """Draw votes of the children of two windows for each sample."""
    batch, parents, size = exactly(shape, 3)
    return normal(rng, (2 * batch, 8, parents, size)) + 1


def _couple_case(name, **options):
    @case("couple", name)
    def build(shape, rng):
        logits = votes_in_windows(shape, rng)[..., 0]
        return lambda b: routing.couplings.couple(b, axis=2, **options), [logits]


_couple_case("couple")
_couple_case("couple_orphans", orphans=True)
_couple_case("couple_windows", windows=GRID, orphans=True)


def _routing_case(op, name, route, beta=1.5, **options):
    @case(op, name)
    def build(shape, rng):
        iterations = int(rng.integers(1, 4))
        chosen = {} if iterations == 1 else {"inverse_temperature": beta, **options}
        votes = normal(rng, exactly(shape, 4)) + 1  # sums of votes stay away from 0
        return lambda votes: route(votes, iterations=iterations, **chosen).poses, [votes]


for _update in routing.UPDATES:
    _routing_case("_agreement", f"agreement_{_update}", routing.agreement, update=_update)
_routing_case("_distance", "distance", routing.distance, beta=0.5)


def _windows_case(op, name, route, **options):
    @case(op, f"{name}_windows")
    def build(shape, rng):
        return lambda votes: route(votes, windows=GRID, **options).poses, [
            votes_in_windows(shape, rng)
        ]


_windows_case("_agreement", "leaky", routing.ROUTINGS["leaky"])
_windows_case("_distance", "distance", routing.distance, inverse_temperature=0.3)


@case("_fixed_point")
def cosine_activation(shape, rng):
    x = np.array(rng.uniform(0.8, 1.2, shape))  # where an iteration is a contraction
    return lambda x: routing.cosine_activation(x, iterations=200, gradient="implicit"), [x]


@case("_fixed_point")
def fixed_point_of_two(shape, rng):
    def step(v, a, b):
        return 0.005 * ops.tanh(v * a) + a * b  # even half precision converges

    def function(a, b):
        return routing.fixed_point(step, b, a, b, iterations=200, gradient="implicit")

    return function, [nonzero(rng, shape), normal(rng, shape)]


@case("make_votes")
def make_votes(shape, rng):
    batch, inputs, outputs, size = exactly(shape, 4)
    # More children than are processed at a time
    inputs += routing.blocks.CHILDREN * int(rng.integers(2))
    return routing.make_votes, [
        normal(rng, (batch, inputs, 2)),
        normal(rng, (inputs, outputs, 2, size)),
    ]


@case("_route_in_blocks")
def route_in_blocks(shape, rng):
    batch, inputs, outputs, size = exactly(shape, 4)
    arrays = [normal(rng, (batch, inputs, 2)), normal(rng, (inputs, outputs, 2, size))]

    def layer(u, w):
        return routing.agreement(routing.make_votes(u, w))

    return lambda u, w: routing.route_in_blocks(layer, [u], [w], 1).poses, arrays


# --- EM routing and matrix capsules --------------------------------------------------------------


def _em_case(step):
    @case("_em", f"em_{step}")
    def build(shape, rng):
        batch, inputs, outputs, size = exactly(shape, 4)
        arrays = [normal(rng, (batch, inputs + 4, outputs, size))]
        if step in ("input-activation", "complete"):
            arrays.append(np.array(rng.uniform(0.2, 0.9, (batch, inputs + 4))))
        if step != "gmm":
            arrays += [normal(rng, outputs), normal(rng, outputs)]
        options = {"step": step, "iterations": int(rng.integers(1, 4)), "floor": 1e-3}
        if step != "gmm":
            options["inverse_temperature"] = 0.5

        def function(votes, *rest):
            rest = (None, *rest) if step == "activation" else rest
            return ops.concatenate([x.reshape(-1) for x in em(votes, *rest, **options)[:2]])

        return function, arrays


for _step in ("gmm", "activation", "input-activation", "complete"):
    _em_case(_step)


@case("matrix_votes")
def matrix_votes(shape, rng):
    batch, inputs, outputs = exactly(shape, 3)
    arrays = [normal(rng, (batch, inputs, 3, 3)), normal(rng, (inputs, outputs, 3, 3))]
    return nn.matrix.matrix_votes, arrays
