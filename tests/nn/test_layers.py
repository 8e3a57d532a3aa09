"""Layers: values, gradients of inputs and parameters, and initial values."""

import math

import numpy as np
import pytest
from layer_checks import check_layer, rng
from tensors import draw
from thinning import thinned

from minicaps import Tensor, no_grad, ops
from minicaps.backend import choose_device
from minicaps.nn import (
    BatchNorm2d,
    Conv2d,
    ConvCaps,
    Decoder,
    DenseCaps,
    Dropout,
    Linear,
    Module,
    PrimaryCaps,
    SharedCaps,
    init,
)
from minicaps.nn.capsules import group_channels
from minicaps.routing import ROUTINGS, agreement_plain, make_votes

# --- Linear and Conv2d ---------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4), (4,), (0, 4)])
def test_linear(shape):
    layer = Linear(4, 5, rng()).astype(np.float64)
    layer.bias.data[:] = draw(5, seed=1)
    x = draw(*shape, seed=2)
    np.testing.assert_allclose(
        layer(Tensor(x)).data, x @ layer.weight.data + layer.bias.data, rtol=1e-12
    )
    check_layer(layer, x)


@pytest.mark.parametrize(("stride", "padding"), [(1, 0), (2, 0), (1, 1), (2, 2)])
def test_conv2d(stride, padding):
    layer = Conv2d(2, 3, 3, rng(), stride=stride, padding=padding).astype(np.float64)
    layer.bias.data[:] = draw(3, seed=1)
    x = draw(2, 2, 7, 6, seed=2)
    w, b = layer.weight.data, layer.bias.data
    y = layer(Tensor(x)).data
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    p, q = ((n + 2 * padding - 3) // stride + 1 for n in (7, 6))
    assert y.shape == (2, 3, p, q)
    for n, o, i, j in np.ndindex(y.shape):
        window = padded[n, :, stride * i : stride * i + 3, stride * j : stride * j + 3]
        assert y[n, o, i, j] == pytest.approx((window * w[o]).sum() + b[o])
    check_layer(layer, x)


def test_a_convolution_without_bias():
    layer = Conv2d(2, 3, 3, rng(), bias=False)
    assert [name for name, _ in layer.named_parameters()] == ["weight"]
    x = draw(1, 2, 4, 4).astype(np.float32)
    expected = ops.conv2d(x, layer.weight).data
    np.testing.assert_array_equal(layer(Tensor(x)).data, expected)


@pytest.mark.parametrize(
    "make",
    [
        lambda init: Linear(2, 2, rng(), init=init),
        lambda init: Conv2d(1, 1, 2, rng(), init=init),
    ],
)
def test_an_unknown_init_is_refused(make):
    with pytest.raises(ValueError, match="unknown init 'relu': choose he or glorot"):
        make("relu")


def test_layers_without_a_generator_start_from_fresh_values():
    makers = [
        lambda: Linear(3, 2),
        lambda: Conv2d(1, 2, 3),
        lambda: PrimaryCaps(2, 2, 4, 3).conv,
        lambda: DenseCaps((5, 2), (3, 4)),
        lambda: SharedCaps(2, (3, 4), children=5),
        lambda: ConvCaps((2, 2), (3, 4), 3),
    ]
    for make in makers:
        assert np.abs(make().weight.data - make().weight.data).min() > 0
    decoder = Decoder((2, 2), (1, 2, 2), 7, hidden=(4, 4))  # a seed: the layers still differ
    assert np.abs(decoder.layers[0].weight.data - decoder.layers[1].weight.data).min() > 0


# --- Dropout and batch norm ----------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_drops_that_share_and_keeps_the_expected_value(rate):
    layer, x = Dropout(rate), np.full((200, 500), 3, np.float32)
    y = layer(Tensor(x)).data
    assert y.dtype == np.float32
    assert (y == 0).mean() == pytest.approx(rate, abs=0.01)
    np.testing.assert_allclose(y[y != 0], 3 / (1 - rate), rtol=1e-6)
    assert y.mean() == pytest.approx(3, rel=0.03)


def test_dropout_changes_nothing_in_evaluation_or_at_rate_0():
    x = Tensor(draw(3, 4))
    for layer in (Dropout(0.5).eval(), Dropout(0)):
        np.testing.assert_array_equal(layer(x).data, x.data)


class Again(Module):
    """Return a layer that draws the same numbers at every call."""

    def __init__(self, layer):
        self.layer = layer

    def forward(self, x):
        self.layer.reseed(7)
        return self.layer(x)


def test_dropout_s_gradient():
    check_layer(Again(Dropout(0.4)), draw(5, 6))


@pytest.mark.parametrize("rate", [-0.1, 1, 50, float("nan")])
def test_a_wrong_rate_is_refused(rate):
    with pytest.raises(ValueError, match=f"at least 0 and less than 1, not {rate}"):
        Dropout(rate)


def test_dropout_draws_the_same_on_the_device(strict_cupy):
    x, results = draw(20, 30), []
    for device in map(choose_device, ("cpu", "gpu")):
        layer = Again(Dropout(0.5)).to(device)
        strict_cupy.host_syncs.clear()
        y = layer(Tensor(device.put(x)))
        assert not strict_cupy.host_syncs
        results.append(y.numpy())
    np.testing.assert_array_equal(*results)


def a_batch_norm(channels, seed=0):
    layer = BatchNorm2d(channels).astype(np.float64)
    layer.scale.data[:] = rng(seed).uniform(0.5, 2, (channels, 1, 1))
    layer.shift.data[:] = draw(channels, 1, 1, seed=seed + 1)
    return layer


@pytest.mark.parametrize("shape", [(3, 2, 4, 5), (1, 3, 2, 2), (4, 1, 1, 1)])
def test_batch_norm_in_training_is_its_formula(shape):
    layer, x = a_batch_norm(shape[1]), 3 * draw(*shape, seed=2) + 1
    y = layer(Tensor(x)).data
    scale, shift = layer.scale.data.ravel(), layer.shift.data.ravel()
    for c in range(shape[1]):
        values = x[:, c].ravel()
        m = sum(values) / len(values)
        v = sum((values - m) ** 2) / len(values)
        expected = scale[c] * (values - m) / math.sqrt(v + 1e-5) + shift[c]
        np.testing.assert_allclose(y[:, c].ravel(), expected, rtol=1e-10)
    check_layer(layer, x)


def test_batch_norm_in_evaluation_takes_the_running_means():
    layer, mean, variance = a_batch_norm(2), np.zeros(2), np.ones(2)
    for n in range(3):
        x = 2 * draw(4, 2, 3, 3, seed=n) + n
        layer(Tensor(x))
        mean += 0.1 * (x.mean(axis=(0, 2, 3)) - mean)
        variance += 0.1 * (x.var(axis=(0, 2, 3)) - variance)
    layer.eval()
    x = draw(1, 2, 3, 3, seed=9)
    y = layer(Tensor(x)).data
    scale, shift = layer.scale.data.ravel(), layer.shift.data.ravel()
    for c in range(2):
        expected = scale[c] * (x[:, c] - mean[c]) / math.sqrt(variance[c] + 1e-5) + shift[c]
        np.testing.assert_allclose(y[:, c], expected, rtol=1e-10)
    before = layer.state_dict()
    check_layer(layer, x)
    assert all((layer.state_dict()[name] == before[name]).all() for name in ("mean", "variance"))


def test_in_evaluation_a_sample_does_not_depend_on_its_batch():
    layer, x = a_batch_norm(2).eval(), draw(3, 2, 4, 4)
    for n in range(3):
        np.testing.assert_array_equal(layer(Tensor(x[n : n + 1])).data[0], layer(Tensor(x)).data[n])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 2, 1, 1), (2, 2, 3, 3)])
def test_batch_norm_of_a_constant_is_the_shift(shape, dtype):
    layer = a_batch_norm(2).astype(dtype)
    x = Tensor(np.full(shape, 1e4, dtype), requires_grad=True)
    y = layer(x)
    np.testing.assert_array_equal(y.data, np.broadcast_to(layer.shift.data, shape))
    y.backward(np.ones(shape, dtype))
    assert np.isfinite(x.grad).all() and np.isfinite(layer.scale.grad).all()
    arrays = (y, x.grad, layer.shift.grad, layer.mean, layer.variance)
    assert {a.dtype for a in arrays} == {np.dtype(dtype)}


@pytest.mark.filterwarnings("error")
def test_batch_norm_learns_nothing_from_no_samples():
    layer = BatchNorm2d(2)
    assert layer(Tensor(np.zeros((0, 2, 3, 3), np.float32))).shape == (0, 2, 3, 3)
    assert not layer.mean.any() and (layer.variance == 1).all()


@pytest.mark.parametrize("shape", [(2, 4, 3, 3), (2, 1, 3, 3), (2, 3)])
def test_batch_norm_refuses_other_channels(shape):
    with pytest.raises(ValueError, match=r"batch norm needs \(B, 3, H, W\), not"):
        BatchNorm2d(3)(Tensor(np.zeros(shape)))


def test_batch_norm_is_the_same_on_the_device(strict_cupy):
    results = []
    for device in map(choose_device, ("cpu", "gpu")):
        layer = a_batch_norm(2).to(device)
        strict_cupy.host_syncs.clear()
        x = Tensor(device.put(draw(3, 2, 4, 4)), requires_grad=True)
        layer(x).sum().backward()
        assert not strict_cupy.host_syncs
        x = choose_device("cpu").put(layer.eval()(x.detach()).data)
        results.append([x, *layer.state_dict().values()])
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


# --- Capsule layers ------------------------------------------------------------------------------


def pass_through(channels, types, size):
    """Return primary capsules with an identity convolution and without squash."""
    layer = PrimaryCaps(channels, types, size, 1, rng(), stride=1, squash="none")
    layer.conv.weight.data[...] = np.eye(channels)[:, :, None, None]
    return layer


@pytest.mark.parametrize("cut", [lambda x: group_channels(x, 8), pass_through(256, 32, 8)])
def test_a_capsule_is_eight_channels_at_one_position(cut):
    channel = np.broadcast_to(np.arange(256.0)[:, None, None], (1, 256, 6, 6))
    capsules = cut(Tensor(channel)).data[0]
    assert capsules.shape == (1152, 8)
    assert all(len(set(c)) == 8 for c in capsules)
    different, counts = np.unique(capsules, axis=0, return_counts=True)
    np.testing.assert_array_equal(different, np.arange(256).reshape(32, 8))
    assert (counts == 36).all()


@pytest.mark.parametrize("cut", [lambda x: group_channels(x, 8), pass_through(256, 32, 8)])
def test_a_capsule_sees_one_position_and_positions_come_first(cut):
    pixel = np.broadcast_to(np.arange(36.0).reshape(6, 6), (1, 256, 6, 6))
    capsules = cut(Tensor(pixel)).data[0]
    np.testing.assert_array_equal(capsules, np.repeat(np.arange(36), 32)[:, None].repeat(8, axis=1))


@pytest.mark.parametrize("kind", ["paper", "half", "none"])
def test_primary_capsules(kind):
    layer = PrimaryCaps(2, 3, 4, 3, rng(), squash=kind).astype(np.float64)
    x = draw(2, 2, 7, 9, seed=1)
    capsules = layer(Tensor(x)).data
    assert capsules.shape == (2, 3 * 4 * 3, 4)
    maps = layer.conv(Tensor(x)).data
    s = maps[1, 4:8, 2, 1]  # the second type at the position (2, 1)
    np.testing.assert_allclose(
        capsules[1, (2 * 4 + 1) * 3 + 1], ops.squash(Tensor(s), kind=kind).data, rtol=1e-12
    )
    check_layer(layer, x)


def test_dense_capsules():
    layer = DenseCaps((6, 2), (3, 4), rng(), iterations=2, squash="half").astype(np.float64)
    u = draw(5, 6, 2, seed=1)
    routed = layer(Tensor(u))
    votes = make_votes(Tensor(u), layer.weight)
    expected = agreement_plain(votes, iterations=2, squash="half")
    for x, y in zip(routed, expected, strict=True):
        np.testing.assert_allclose(x.data, y.data, rtol=1e-12)
    assert [t.shape for t in routed] == [(5, 3, 4), (5, 3), (5, 6, 3)]
    check_layer(layer, u)


def test_dense_capsules_pass_every_option_to_the_routing():
    options = {
        "iterations": 4,
        "update": "recompute",
        "gradient": "stop",
        "inverse_temperature": 2.0,
        "squash": "tanh",
    }
    u = Tensor(draw(5, 6, 2, seed=1).astype(np.float32))
    poses = DenseCaps((6, 2), (3, 4), rng(), **options)(u).poses
    votes = make_votes(u, DenseCaps((6, 2), (3, 4), rng()).weight)
    np.testing.assert_allclose(poses.data, agreement_plain(votes, **options).poses.data, rtol=1e-4)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (DenseCaps((6, 2), (3, 4), rng()), (6, 3, 2, 4)),
        (ConvCaps((5, 2), (3, 4), 2, rng()), (20, 3, 2, 4)),
    ],
)
def test_the_votes_of_one_capsule_are_one_matrix_product(layer, shape):
    weight = layer.weight.data
    assert weight.shape == shape
    assert weight.transpose(0, 2, 1, 3).flags.c_contiguous


@pytest.mark.parametrize("children", [1, 4, 9])
def test_shared_capsules_take_any_number_of_children(children):
    layer = SharedCaps(2, (3, 4), rng(), children=5, iterations=2, update="spherical")
    layer.astype(np.float64)
    u = draw(2, children, 2, seed=1)
    routed = layer(Tensor(u))
    votes = np.einsum("bin,jnd->bijd", u, layer.weight.data)
    expected = agreement_plain(Tensor(votes), iterations=2, update="spherical")
    for x, y in zip(routed, expected, strict=True):
        np.testing.assert_allclose(x.data, y.data, rtol=1e-12)
    check_layer(layer, u)


def test_the_order_of_children_is_nothing_to_shared_capsules():
    layer, u = SharedCaps(2, (3, 4), rng(), children=6).astype(np.float64), draw(2, 6, 2)
    order = [3, 1, 5, 0, 2, 4]
    there, other = layer(Tensor(u)), layer(Tensor(u[:, order]))
    np.testing.assert_allclose(there.poses.data, other.poses.data, rtol=1e-12)
    np.testing.assert_allclose(
        there.couplings.data[:, order], other.couplings.data, rtol=1e-12, atol=1e-15
    )


def agreement_in_windows(u, weight, kernel, stride, iterations):
    """Apply the paper's routing, capsule by capsule, to windows of a grid of children.

    u (H, W, T, N), weight (K·K·T, J, N, D) -> poses (P, Q, J, D), couplings (P, Q, K·K·T, J).
    """
    height, width, types, _ = u.shape
    p, q = (height - kernel) // stride + 1, (width - kernel) // stride + 1
    parents = range(weight.shape[1])
    place = {}  # (window, number of the child in it) -> the child
    for y, x, k, m, t in np.ndindex(p, q, kernel, kernel, types):
        child = (k * kernel + m) * types + t
        place[y, x, child] = (y * stride + k, x * stride + m, t)
    votes = {(at, j): u[place[at]] @ weight[at[2], j] for at in place for j in parents}
    b = dict.fromkeys(votes, 0.0)
    for _ in range(iterations):
        total = {}
        for (at, _), logit in b.items():
            total[place[at]] = total.get(place[at], 0) + math.exp(logit)
        c = {(at, j): math.exp(b[at, j]) / total[place[at]] for at, j in b}
        s = np.zeros((p, q, len(parents), weight.shape[3]))
        for (y, x, child), j in votes:
            s[y, x, j] += c[(y, x, child), j] * votes[(y, x, child), j]
        v = ops.squash(Tensor(s)).data
        for (y, x, child), j in votes:
            b[(y, x, child), j] += votes[(y, x, child), j] @ v[y, x, j]
    couplings = np.array([c[at, j] for at in place for j in parents])
    return v, couplings.reshape(p, q, -1, len(parents))


@pytest.mark.parametrize(
    ("size", "kernel", "stride"),
    [
        ((4, 5), 3, 1),
        ((5, 4), 2, 2),
        ((5, 6), 3, 2),
        ((3, 3), 1, 1),
        ((3, 4), 1, 2),
        ((3, 3), 3, 1),
    ],
)
def test_convolutional_capsules_are_routed_in_windows(size, kernel, stride):
    layer = ConvCaps((2, 2), (3, 4), kernel, rng(), stride=stride).astype(np.float64)
    u = draw(2, *size, 2, 2, seed=1)
    routed = layer(Tensor(u))
    for n in range(2):
        poses, couplings = agreement_in_windows(u[n], layer.weight.data, kernel, stride, 3)
        np.testing.assert_allclose(routed.poses.data[n], poses, rtol=1e-10)
        np.testing.assert_allclose(routed.couplings.data[n], couplings, rtol=1e-10)
    lengths = np.linalg.norm(routed.poses.data, axis=-1)
    np.testing.assert_allclose(routed.activations.data, lengths, rtol=1e-12)


def test_convolutional_capsules_over_the_whole_grid_are_dense():
    layer = ConvCaps((2, 2), (3, 4), 3, rng()).astype(np.float64)
    dense = DenseCaps((18, 2), (3, 4), rng()).astype(np.float64)
    dense.weight.data = layer.weight.data.copy()
    u = draw(2, 3, 3, 2, 2, seed=1)
    expected = dense(Tensor(u.reshape(2, 18, 2)))
    for x, y in zip(layer(Tensor(u)), expected, strict=True):
        np.testing.assert_allclose(x.data.reshape(y.shape), y.data, rtol=1e-12)


def test_convolutional_capsules_of_one_position_are_dense_at_each():
    layer = ConvCaps((4, 2), (3, 5), 1, rng()).astype(np.float64)
    u = draw(2, 3, 2, 4, 2, seed=1)
    routed = layer(Tensor(u))
    expected = agreement_plain(make_votes(Tensor(u.reshape(-1, 4, 2)), layer.weight))
    assert [x.shape for x in routed] == [(2, 3, 2, 3, 5), (2, 3, 2, 3), (2, 3, 2, 4, 3)]
    for x, y in zip(routed, expected, strict=True):
        np.testing.assert_allclose(x.data.reshape(y.shape), y.data, rtol=1e-12)


@pytest.mark.parametrize("stride", [1, 2])
def test_what_moves_in_the_grid_moves_in_the_parents(stride):
    layer = ConvCaps((2, 2), (3, 4), 3, rng(), stride=stride).astype(np.float64)
    u = np.zeros((1, 12, 12, 2, 2))
    u[:, 4:6, 4:6] = draw(1, 2, 2, 2, 2, seed=1)  # far enough inside to be in all windows
    moved = np.roll(u, (stride, 2 * stride), axis=(1, 2))
    poses, there = layer(Tensor(u)).poses.data, layer(Tensor(moved)).poses.data
    assert abs(poses).max() > 1e-3
    np.testing.assert_allclose(there, np.roll(poses, (1, 2), axis=(1, 2)), atol=1e-14)


def routed_layers(routing, **options):
    """Yield a small layer of each kind with the given routing, and children for it."""
    options = {"routing": routing, **options}
    yield DenseCaps((5, 2), (3, 4), rng(), **options), draw(2, 5, 2, seed=1)
    yield SharedCaps(2, (3, 4), rng(), children=5, **options), draw(2, 5, 2, seed=1)
    yield ConvCaps((2, 2), (3, 4), 2, rng(), **options), draw(2, 3, 3, 2, 2, seed=1)


def set_logits(layer):
    """Give learned couplings logits that are not all zero."""
    if layer.routing.logits is not None:
        layer.routing.logits.data[...] = draw(*layer.routing.logits.shape, seed=5)


@pytest.mark.parametrize("routing", thinned([*ROUTINGS, "learned"], ("em", "agreement")))
def test_every_layer_with_every_routing(routing):
    for layer, u in routed_layers(routing, squash="half"):
        set_logits(layer.astype(np.float64))
        routed = layer(Tensor(u))
        lengths = np.linalg.norm(routed.poses.data, axis=-1)
        np.testing.assert_allclose(routed.activations.data, lengths, rtol=1e-10)
        alone = layer(Tensor(u[1:]))
        for x, y in zip(routed, alone, strict=True):
            np.testing.assert_allclose(x.data[1:], y.data, rtol=1e-10, atol=1e-14)
        check_layer(layer, u)


@pytest.mark.parametrize("iterations", [1, 3, 10])
@pytest.mark.parametrize("routing", [*ROUTINGS, "learned"])
def test_without_a_bias_a_layer_cannot_tell_capsules_from_their_negatives(routing, iterations):
    """All votes change sign, so lengths and couplings stay bit-identical (Peer et al. 2021)."""
    options = {} if routing == "learned" else {"iterations": iterations}
    for layer, u in routed_layers(routing, **options):
        set_logits(layer)
        there, negative = (layer(Tensor(x)) for x in (u, -u))
        np.testing.assert_array_equal(negative.activations.data, there.activations.data)
        np.testing.assert_array_equal(negative.couplings.data, there.couplings.data)
        np.testing.assert_array_equal(negative.poses.data, -there.poses.data)
        assert np.abs(there.poses.data).max() > 0


@pytest.mark.parametrize("routing", [*ROUTINGS, "learned"])
def test_every_routing_keeps_float32(routing):
    for layer, u in routed_layers(routing):
        u = Tensor(u.astype(np.float32), requires_grad=True)
        routed = layer(u)
        routed.activations.sum().backward()
        arrays = [*routed, u.grad, *(p.grad for p in layer.parameters())]
        assert {x.dtype for x in arrays} == {np.dtype(np.float32)}


@pytest.mark.slow
def test_the_implicit_gradient_passes_every_layer():
    options = {"update": "recompute", "iterations": 300}
    both = [
        list(routed_layers("agreement", gradient=gradient, **options))
        for gradient in ("unrolled", "implicit")
    ]
    for pair in zip(*both, strict=True):
        gradients = []
        for layer, u in pair:
            layer.astype(np.float64)(Tensor(u)).poses.sum().backward()
            gradients.append(layer.weight.grad)
        np.testing.assert_allclose(*gradients, rtol=1e-6, atol=1e-8)


def test_couplings_that_are_learned_start_as_the_first_iteration_of_agreement():
    learned, agreed = routed_layers("learned"), routed_layers("agreement", iterations=1)
    for (ours, u), (theirs, _) in zip(learned, agreed, strict=True):
        for x, y in zip(ours(Tensor(u)), theirs(Tensor(u)), strict=True):
            np.testing.assert_allclose(x.data, y.data, rtol=1e-6)
        assert ours.number_of_parameters() == theirs.number_of_parameters() + math.prod(
            ours.routing.logits.shape
        )


def test_couplings_that_are_learned_are_the_same_for_all_samples():
    layer = DenseCaps((5, 2), (3, 4), rng(), routing="learned", squash="tanh").astype(np.float64)
    set_logits(layer)
    u = draw(2, 5, 2, seed=1)
    c = np.exp(layer.routing.logits.data)
    c /= c.sum(axis=1, keepdims=True)
    s = np.einsum("ij,bin,ijnd->bjd", c, u, layer.weight.data)
    routed = layer(Tensor(u))
    np.testing.assert_allclose(routed.poses.data, ops.squash(s, kind="tanh").data, rtol=1e-12)
    np.testing.assert_allclose(routed.couplings.data, [c, c], rtol=1e-12)


def test_couplings_of_a_child_sum_to_one_over_all_windows_that_hold_it():
    for routing in ("agreement", "learned"):
        layer = ConvCaps((1, 2), (3, 4), 2, rng(), routing=routing).astype(np.float64)
        set_logits(layer)
        c = layer(Tensor(draw(1, 3, 3, 1, 2))).couplings.data[0].sum(axis=-1)  # (2, 2, 4)
        middle = c[0, 0, 3] + c[0, 1, 2] + c[1, 0, 1] + c[1, 1, 0]
        assert middle == pytest.approx(1) and c[0, 0, 0] == pytest.approx(1)


MAKERS = {
    "dense": lambda **options: DenseCaps((5, 2), (3, 4), rng(), **options),
    "shared": lambda **options: SharedCaps(2, (3, 4), rng(), children=5, **options),
    "convolutional": lambda **options: ConvCaps((2, 2), (3, 4), 2, rng(), **options),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"routing": "em"}, "unknown routing 'em': choose agreement, .*learned"),
        ({"iteration": 3}, "agreement routing has no option iteration: choose from gradient,"),
        ({"history": [], "orphans": True}, "agreement routing has no option history, orphans"),
        ({"routing": "distance", "update": "recompute"}, "distance routing has no option update"),
        ({"iterations": 0}, "takes 1 to 10,000 iterations, not 0"),
        ({"update": "average"}, "unknown update 'average': choose accumulate"),
        ({"squash": "cube"}, "unknown squash 'cube': choose paper"),
        (
            {"routing": "learned", "iterations": 3, "gradient": "stop"},
            "learned routing has no option gradient, iterations: choose from squash",
        ),
        ({"routing": "learned", "squash": "cube"}, "unknown squash 'cube'"),
    ],
)
def test_wrong_routings_are_refused_when_the_layer_is_built(make, options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)


def test_an_option_of_none_is_the_routing_s_default():
    layer, u = DenseCaps((5, 2), (3, 4), rng(), iterations=None, squash=None), Tensor(draw(2, 5, 2))
    expected = DenseCaps((5, 2), (3, 4), rng())(u)
    np.testing.assert_array_equal(layer(u).poses.data, expected.poses.data)
    DenseCaps((5, 2), (3, 4), rng(), routing="learned", iterations=None, update=None)


def test_learned_couplings_are_for_so_many_children():
    layer = SharedCaps(2, (3, 4), rng(), children=5, routing="learned")
    with pytest.raises(ValueError, match="for 5 children and 3 parents, not 6 and 3"):
        layer(Tensor(draw(1, 6, 2)))


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1, 1, 3, 2, 2), "a 2×2 window does not fit into images of 1×3"),
        ((1, 3, 3, 4, 2), r"do not match: \(4, 16, 2\), \(8, 3, 2, 4\)"),
    ],
)
def test_convolutional_capsules_refuse_other_grids(shape, message):
    with pytest.raises(ValueError, match=message):
        MAKERS["convolutional"]()(Tensor(draw(*shape)))


def test_no_samples_give_no_capsules():
    for layer, u in routed_layers("agreement"):
        some, none = layer(Tensor(u)), layer(Tensor(u[:0]))
        assert [x.shape for x in none] == [(0, *x.shape[1:]) for x in some]


def test_capsule_layers_route_on_the_device(strict_cupy):
    device = choose_device("gpu")
    for routing in (*ROUTINGS, "learned"):
        for layer, u in routed_layers(routing):
            set_logits(layer.astype(np.float64))
            expected = layer(Tensor(u))
            expected.activations.sum().backward()
            gradients = [p.grad for p in layer.parameters()]
            layer.to(device)
            strict_cupy.host_syncs.clear()
            routed = layer(Tensor(device.put(u)))
            routed.activations.sum().backward()
            assert not strict_cupy.host_syncs
            for x, y in zip(routed, expected, strict=True):
                np.testing.assert_allclose(x.numpy(), y.data, rtol=1e-10)
            for p, gradient in zip(layer.parameters(), gradients, strict=True):
                np.testing.assert_allclose(p.grad.get(), gradient, rtol=1e-9, atol=1e-14)


def test_decoder():
    decoder = Decoder((3, 4), (2, 3, 4), rng(), hidden=(5, 6)).astype(np.float64)
    for n, layer in enumerate(decoder.layers):
        layer.bias.data[:] = draw(layer.bias.size, seed=n)
    poses = draw(7, 3, 4, seed=5)
    (w1, b1), (w2, b2), (w3, b3) = ((m.weight.data, m.bias.data) for m in decoder.layers)
    h = np.maximum(poses.reshape(7, 12) @ w1 + b1, 0)
    h = np.maximum(h @ w2 + b2, 0)
    expected = (1 / (1 + np.exp(-(h @ w3 + b3)))).reshape(7, 2, 3, 4)
    np.testing.assert_allclose(decoder(Tensor(poses)).data, expected, rtol=1e-12)
    check_layer(decoder, poses)


def test_the_decoder_draws_nothing_for_an_empty_batch():
    decoder = Decoder((3, 4), (2, 3, 4), rng(), hidden=(5,))
    assert decoder(Tensor(np.zeros((0, 3, 4), np.float32))).shape == (0, 2, 3, 4)


# --- Initial values ------------------------------------------------------------------------------


@pytest.mark.parametrize("fan_in", [10, 1000])
def test_he_normal(fan_in):
    w = init.initial("he", rng(), (200, 300), fan_in, 1)
    assert w.dtype == np.float32 and w.shape == (200, 300)
    assert w.mean() == pytest.approx(0, abs=0.02 * math.sqrt(2 / fan_in))
    assert w.std() == pytest.approx(math.sqrt(2 / fan_in), rel=0.02)
    assert abs(w).max() > 3 * w.std()  # not uniform


@pytest.mark.parametrize("fans", [(10, 20), (1000, 100)])
def test_glorot_uniform(fans):
    w = init.initial("glorot", rng(), (200, 300), *fans)
    limit = math.sqrt(6 / sum(fans))
    assert w.dtype == np.float32 and w.shape == (200, 300)
    assert 0.999 * limit < w.max() <= limit * (1 + 1e-6)
    assert -limit * (1 + 1e-6) <= w.min() < -0.999 * limit
    assert w.std() == pytest.approx(limit / math.sqrt(3), rel=0.02)


@pytest.mark.parametrize(("shape", "gain"), [((50, 3, 8, 16), 1), ((9, 8, 40), 0.2)])
def test_capsule_normal_makes_votes_that_are_longer_by_the_gain(shape, gain):
    w = init.capsule_normal(rng(), shape, gain)
    assert w.dtype == np.float32 and w.shape == shape
    u = units(100, shape[-2])
    votes = np.einsum("bn,...nd->b...d", u, w)
    assert math.sqrt((votes * votes).sum(axis=-1).mean()) == pytest.approx(gain, rel=0.03)


@pytest.mark.parametrize("shape", [(50, 3, 8, 16), (300, 10, 4, 8), (40, 2, 16, 40)])
def test_the_first_sum_of_dense_capsules_is_as_long_as_one_child(shape):
    i, j, n, d = shape
    layer = DenseCaps((i, n), (j, d), rng(), iterations=1, squash="none")
    lengths = fresh_lengths(layer, units(50, shape[0], shape[2]))
    assert math.sqrt((lengths**2).mean()) == pytest.approx(1, rel=0.1)


def units(*shape):
    """Draw random children of length 1."""
    u = draw(*shape, seed=1)
    return (u / np.linalg.norm(u, axis=-1, keepdims=True)).astype(np.float32)


def fresh_lengths(layer, u):
    with no_grad():
        return layer(Tensor(u)).activations.data


@pytest.mark.parametrize("routing", [*ROUTINGS, "learned"])
@pytest.mark.parametrize("length", [0.3, 1])
@pytest.mark.parametrize("shape", [(32, 10, 8, 16), (1152, 10, 8, 16), (40, 2, 8, 4)])
def test_fresh_dense_capsules_are_neither_dead_nor_saturated(shape, length, routing):
    u = length * units(4, shape[0], shape[2])
    i, j, n, d = shape
    layer = DenseCaps((i, n), (j, d), rng(), routing=routing)
    assert 0.02 < fresh_lengths(layer, u).mean() < 0.98


@pytest.mark.parametrize("routing", [*ROUTINGS, "learned"])
@pytest.mark.parametrize("length", [0.3, 10])
@pytest.mark.parametrize("children", thinned([4, 64, 1000]))
def test_fresh_shared_capsules_are_neither_dead_nor_saturated(children, length, routing):
    options = {"children": children, "length": length, "routing": routing}
    layer = SharedCaps(32, (10, 16), rng(), **options)
    at_random = length * units(4, children, 32)
    agreeing = length * np.repeat(units(4, 1, 32), children, axis=1)
    for u in (at_random, agreeing):
        assert 0.02 < fresh_lengths(layer, u).mean() < 0.98


@pytest.mark.parametrize("routing", [*ROUTINGS, "learned"])
@pytest.mark.parametrize(("size", "kernel", "stride"), [(7, 3, 1), (3, 3, 1), (9, 3, 2), (9, 5, 2)])
def test_fresh_convolutional_capsules_are_neither_dead_nor_saturated(size, kernel, stride, routing):
    layer = ConvCaps((8, 8), (4, 16), kernel, rng(), stride=stride, routing=routing)
    lengths = fresh_lengths(layer, units(4, size, size, 8, 8))
    assert 0.02 < lengths.mean() < 0.99


def test_which_layer_starts_how():
    biases = []
    for layer, fans, kind in [
        (Linear(300, 200, rng()), (300, 200), "he"),
        (Linear(300, 200, rng(), init="glorot"), (300, 200), "glorot"),
        (Conv2d(30, 40, 5, rng()), (30 * 25, 40 * 25), "he"),
        (Conv2d(30, 40, 5, rng(), init="glorot"), (30 * 25, 40 * 25), "glorot"),
        (PrimaryCaps(30, 5, 8, 5, rng()).conv, (30 * 25, 40 * 25), "glorot"),
        (Decoder((4, 16), (1, 20, 20), rng(), hidden=(128,)).layers[0], (64, 128), "he"),
        (Decoder((4, 16), (1, 20, 20), rng(), hidden=(128,)).layers[1], (128, 400), "glorot"),
    ]:
        std = math.sqrt(2 / fans[0]) if kind == "he" else math.sqrt(2 / sum(fans))
        w = layer.weight.data
        assert w.std() == pytest.approx(std, rel=0.03)
        assert (abs(w).max() > 1.8 * std) == (kind == "he")  # normal; uniform ends at √3 std
        biases.append(layer.bias.data)
    assert not any(b.any() for b in biases)


def test_wide_numbers_leave_narrow_layers_narrow():
    x = np.ones((2, 3, 4, 4), np.float32)
    assert Dropout(np.float64(0.5))(Tensor(x)).dtype == np.float32
    norm = BatchNorm2d(3)
    norm(Tensor(x.astype(np.float64)))
    assert norm.mean.dtype == norm.variance.dtype == np.float32
    BatchNorm2d(3).load_state_dict(norm.state_dict())
