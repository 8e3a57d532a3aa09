"""Modules, layers and networks: values, gradients of inputs and parameters, starts, sizes."""

import copy
import math

import numpy as np
import pytest

from minicaps import Tensor, models, no_grad, ops, optim
from minicaps.backend import choose_device
from minicaps.gradcheck import check_gradients
from minicaps.nn import Conv2d, Decoder, DenseCaps, Linear, Module, PrimaryCaps, init
from minicaps.nn.capsules import group_channels
from minicaps.nn.layers import parameter
from minicaps.routing import agreement_plain
from minicaps.routing.blocks import make_votes


def rng(seed=0):
    return np.random.default_rng(seed)


def draw(*shape, seed=0):
    return rng(seed).normal(size=shape)


def check_layer(layer, *inputs):
    """Check the gradients of a layer's outputs in all its parameters and inputs."""
    places = []
    for name, p in layer.named_parameters():
        *path, last = name.split(".")
        owner = layer
        for part in path:
            owner = owner[int(part)] if part.isdigit() else getattr(owner, part)
        places.append((owner, last, p.data))

    def function(*tensors):
        for (owner, last, _), tensor in zip(places, tensors, strict=False):
            setattr(owner, last, tensor)
        out = layer(*tensors[len(places) :])
        return out if isinstance(out, Tensor) else (out.poses, out.activations)

    check_gradients(function, *(data for _, _, data in places), *inputs)


# --- Module --------------------------------------------------------------------------------------


class Leaf(Module):
    def __init__(self, value, shape=(2,)):
        self.weight = parameter(np.full(shape, value, np.float32))

    def forward(self, x):
        self.seen = x * self.weight  # what a module keeps of its work is not a parameter
        return self.seen


class Tree(Module):
    def __init__(self):
        self.first = Leaf(1)
        self.scale = parameter(np.array(2, np.float32))
        self.blocks = [Leaf(3), [Leaf(4), Leaf(5)], "no module"]
        self.pair = (Leaf(6), Leaf(7))
        self.constant = Tensor(np.zeros(3))
        self.bias = parameter(np.full(2, 8, np.float32))

    def forward(self, x):
        return self.first(x) * self.scale + self.bias


NAMES = [
    "first.weight",
    "scale",
    "blocks.0.weight",
    "blocks.1.0.weight",
    "blocks.1.1.weight",
    "pair.0.weight",
    "pair.1.weight",
    "bias",
]


def test_parameters_are_named_in_order_of_creation():
    tree = Tree()
    named = list(tree.named_parameters())
    assert [name for name, _ in named] == NAMES
    assert [p.data.flat[0] for _, p in named] == list(range(1, 9))
    assert tree.parameters() == [p for _, p in named]
    assert tree.number_of_parameters() == 7 * 2 + 1
    children = ["first", "blocks.0", "blocks.1.0", "blocks.1.1", "pair.0", "pair.1"]
    assert [name for name, _ in tree.children()] == children


def test_what_forward_keeps_is_no_parameter():
    tree = Tree()
    tree(Tensor(np.ones(2, np.float32)))
    assert tree.first.seen.requires_grad
    assert [name for name, _ in tree.named_parameters()] == NAMES


def test_zero_grad_forgets_every_gradient():
    tree = Tree()
    tree(Tensor(np.ones(2, np.float32))).sum().backward()
    assert tree.first.weight.grad is not None and tree.scale.grad is not None
    tree.zero_grad()
    assert all(p.grad is None for p in tree.parameters())


def test_train_and_eval_reach_every_module():
    tree = Tree()
    every = [tree, *(m for _, m in tree.children())]
    assert all(m.training for m in every)
    assert tree.eval() is tree and not any(m.training for m in every)
    assert tree.train() is tree and all(m.training for m in every)
    assert tree.train(False) is tree and not any(m.training for m in every)
    assert Tree().training


def test_state_dict_copies():
    tree = Tree()
    state = tree.state_dict()
    assert list(state) == NAMES
    assert all(isinstance(a, np.ndarray) for a in state.values())
    state["bias"][:] = 100
    assert tree.bias.data[0] == 8
    tree.first.weight.data[:] = 200
    assert state["first.weight"][0] == 1


def test_load_state_dict_takes_everything_and_shares_nothing():
    tree, other = Tree(), Tree()
    for n, p in enumerate(tree.parameters()):
        p.data[...] = 0.1 * n
    state = tree.state_dict()
    before = other.parameters()
    other.load_state_dict(state)
    assert other.parameters() == before  # the same tensors: an optimiser goes on with them
    for p, q in zip(tree.parameters(), other.parameters(), strict=True):
        np.testing.assert_array_equal(p.data, q.data)
    state["bias"][:] = 100
    assert other.bias.data[0] == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop("bias"), "^the state lacks bias$"),
        (lambda s: (s.pop("bias"), s.pop("scale")), "^the state lacks bias, scale$"),
        (lambda s: s.update(more=s["bias"]), "^the state has more, which this model has not$"),
        (
            lambda s: s.update(bias=s["bias"][:1]),
            r"^bias is \(1,\) float32 in the state and \(2,\) float32 in this model$",
        ),
        (
            lambda s: s.update(bias=s["bias"].astype(float)),
            r"^bias is \(2,\) float64 in the state and \(2,\) float32 in this model$",
        ),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_nothing_changed(change, message):
    tree = Tree()
    state = {name: a + 1 for name, a in tree.state_dict().items()}
    change(state)
    with pytest.raises(ValueError, match=message):
        tree.load_state_dict(state)
    for name, a in Tree().state_dict().items():
        np.testing.assert_array_equal(dict(tree.named_parameters())[name].data, a)


def a_small_capsnet(**options):
    return models.build("capsnet", (1, 17, 17), 3, preset="small", **options)


def layouts(model):
    """Return the axes longer than 1 of every parameter in the order of memory, slowest first."""
    return [
        sorted((a for a in range(p.ndim) if p.shape[a] > 1), key=lambda a: -p.data.strides[a])
        for p in model.parameters()
    ]


CHANNELS_LAST = [0, 2, 3, 1]  # of OIHW


def test_conversions_and_loading_keep_the_memory_layout(strict_cupy):
    model = a_small_capsnet()
    expected = layouts(model)
    assert expected[2] == CHANNELS_LAST
    assert layouts(model.astype(np.float64)) == expected
    assert layouts(model.to(choose_device("gpu"))) == expected
    assert layouts(model.to(choose_device("cpu"))) == expected
    state = {name: np.ascontiguousarray(a) for name, a in model.state_dict().items()}
    model.load_state_dict(state)
    assert layouts(model) == expected
    np.testing.assert_array_equal(model.primary.conv.weight.data, state["primary.conv.weight"])


def test_astype_converts_every_parameter():
    tree = Tree().astype(np.float64)
    assert {p.dtype for p in tree.parameters()} == {np.dtype(np.float64)}
    assert [name for name, _ in tree.named_parameters()] == NAMES
    assert [p.data.flat[0] for p in tree.parameters()] == list(range(1, 9))


def test_to_moves_every_parameter_there_and_back(strict_cupy):
    tree = Tree()
    tree(Tensor(np.ones(2, np.float32))).sum().backward()
    assert tree.to(choose_device("gpu")) is tree
    assert {p.device for p in tree.parameters()} == {"gpu"}
    assert all(p.grad is None for p in tree.parameters())
    state = tree.state_dict()
    assert all(isinstance(a, np.ndarray) for a in state.values())
    tree.load_state_dict({name: a + 1 for name, a in state.items()})
    assert {p.device for p in tree.parameters()} == {"gpu"}
    tree.to(choose_device("cpu"))
    assert {p.device for p in tree.parameters()} == {"cpu"}
    assert [p.data.flat[0] for p in tree.parameters()] == list(range(2, 10))


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
    layer = Conv2d((2, 3), 3, rng(), stride=stride, padding=padding).astype(np.float64)
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


@pytest.mark.parametrize(
    "make",
    [
        lambda before: Linear(2, 2, rng(), before=before),
        lambda before: Conv2d((1, 1), 2, rng(), before=before),
    ],
)
def test_an_unknown_follower_is_refused(make):
    with pytest.raises(ValueError, match="'sigmoid' after a layer: choose relu or none"):
        make("sigmoid")


# --- Capsule layers ------------------------------------------------------------------------------


def pass_through(channels, types, size):
    """Primary capsules whose convolution changes nothing and whose squash is none."""
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
    layer = DenseCaps((6, 3, 2, 4), rng(), iterations=2, squash="half").astype(np.float64)
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
    poses = DenseCaps((6, 3, 2, 4), rng(), **options)(u).poses
    votes = make_votes(u, DenseCaps((6, 3, 2, 4), rng()).weight)
    np.testing.assert_allclose(poses.data, agreement_plain(votes, **options).poses.data, rtol=1e-4)


def test_the_votes_of_one_capsule_are_one_matrix_product():
    weight = DenseCaps((6, 3, 2, 4), rng()).weight.data
    assert weight.shape == (6, 3, 2, 4)
    assert weight.transpose(0, 2, 1, 3).flags.c_contiguous


def test_decoder():
    decoder = Decoder(3, 4, (5, 6), (2, 3, 4), rng()).astype(np.float64)
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
    decoder = Decoder(3, 4, (5,), (2, 3, 4), rng())
    assert decoder(Tensor(np.zeros((0, 3, 4), np.float32))).shape == (0, 2, 3, 4)


class Recorder(Module):
    """A decoder that shows what it was given."""

    def forward(self, poses):
        self.given = poses.data.reshape(len(poses), -1)
        return (poses * poses).sum()


@pytest.mark.parametrize("training", [True, False])
def test_the_mask_keeps_the_label_in_training_and_the_longest_in_testing(training):
    model = models.build("capsnet", (1, 17, 17), 10, preset="small")
    model.decoder = Recorder()
    poses = Tensor(rng().uniform(0.1, 0.2, (1, 10, 16)), requires_grad=True)
    poses.data[0, 2] *= 3
    longest = ops.length(poses).data.argmax(axis=1)
    keep = np.array([0]) if training else longest
    model.reconstruct(poses, keep).backward()
    kept = 0 if training else 2
    np.testing.assert_array_equal(
        model.decoder.given[0].nonzero()[0], np.arange(16 * kept, 16 * kept + 16)
    )
    np.testing.assert_array_equal(poses.grad[0].any(axis=1).nonzero()[0], [kept])


# --- Initial values ------------------------------------------------------------------------------


@pytest.mark.parametrize("fan_in", [10, 1000])
def test_he_normal(fan_in):
    w = init.he_normal(rng(), (200, 300), fan_in)
    assert w.dtype == np.float32 and w.shape == (200, 300)
    assert w.mean() == pytest.approx(0, abs=0.02 * math.sqrt(2 / fan_in))
    assert w.std() == pytest.approx(math.sqrt(2 / fan_in), rel=0.02)
    assert abs(w).max() > 3 * w.std()  # not uniform


@pytest.mark.parametrize("fans", [(10, 20), (1000, 100)])
def test_glorot_uniform(fans):
    w = init.glorot_uniform(rng(), (200, 300), *fans)
    limit = math.sqrt(6 / sum(fans))
    assert w.dtype == np.float32 and w.shape == (200, 300)
    assert 0.999 * limit < w.max() <= limit * (1 + 1e-6)
    assert -limit * (1 + 1e-6) <= w.min() < -0.999 * limit
    assert w.std() == pytest.approx(limit / math.sqrt(3), rel=0.02)


@pytest.mark.parametrize("shape", [(50, 3, 8, 16), (300, 10, 4, 8), (40, 2, 16, 40)])
def test_capsule_normal_makes_the_first_sum_as_long_as_one_capsule(shape):
    children, parents, n, d = shape
    w = init.capsule_normal(rng(), shape)
    assert w.dtype == np.float32 and w.shape == shape
    assert w.std() == pytest.approx(parents / math.sqrt(children * d), rel=0.03)
    u = draw(50, children, n, seed=1)
    u /= np.linalg.norm(u, axis=2, keepdims=True)
    s = np.einsum("bin,ijnd->bjd", u, w, optimize=True) / parents
    assert math.sqrt((s * s).sum(axis=2).mean()) == pytest.approx(1, rel=0.1)


def test_which_layer_starts_how():
    biases = []
    for layer, fans, before in [
        (Linear(300, 200, rng()), (300, 200), "relu"),
        (Linear(300, 200, rng(), before="none"), (300, 200), "none"),
        (Conv2d((30, 40), 5, rng()), (30 * 25, 40 * 25), "relu"),
        (Conv2d((30, 40), 5, rng(), before="none"), (30 * 25, 40 * 25), "none"),
        (PrimaryCaps(30, 5, 8, 5, rng()).conv, (30 * 25, 40 * 25), "none"),
        (Decoder(4, 16, (128,), (1, 20, 20), rng()).layers[0], (64, 128), "relu"),
        (Decoder(4, 16, (128,), (1, 20, 20), rng()).layers[1], (128, 400), "none"),
    ]:
        std = math.sqrt(2 / fans[0]) if before == "relu" else math.sqrt(2 / sum(fans))
        w = layer.weight.data
        assert w.std() == pytest.approx(std, rel=0.03)
        assert (abs(w).max() > 1.8 * std) == (before == "relu")  # normal; uniform ends at √3 std
        biases.append(layer.bias.data)
    assert not any(b.any() for b in biases)


def test_equal_seeds_make_equal_networks():
    a, b, c = (a_small_capsnet(seed=s).state_dict() for s in (1, 1, 2))
    assert all((a[name] == b[name]).all() for name in a)
    weights = [name for name in a if name.endswith("weight")]
    assert not any((a[name] == c[name]).any() for name in weights)
    assert {x.dtype for x in a.values()} == {np.dtype(np.float32)}


# --- CapsNet -------------------------------------------------------------------------------------


def pictures(batch, shape=(1, 28, 28), seed=0):
    """Bright blobs on black: about as many dark and bright pixels as a digit has."""
    x = rng(seed).normal(size=(batch, *shape))
    for _ in range(4):
        x = (x + np.roll(x, 1, axis=-1) + np.roll(x, 1, axis=-2)) / 3
    return (x > np.quantile(x, 0.8)).astype(np.float32)


@pytest.mark.parametrize("preset", ["paper", "small"])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_fresh_capsnet_is_neither_dead_nor_saturated(preset, seed):
    model = models.build("capsnet", (1, 28, 28), 10, preset=preset, seed=seed)
    x = Tensor(pictures(4))
    with no_grad():
        for convolution in model.convolutions:
            x = ops.relu(convolution(x))
        primary = ops.length(model.primary(x)).data
        lengths = model(Tensor(pictures(4))).activations.data
    assert lengths.min() > 0.02 and lengths.max() < 0.98
    assert 0.02 < primary.mean() < 0.98


def test_a_small_capsnet_learns_a_batch():
    model = models.build("capsnet", (1, 28, 28), 10, preset="small")
    images, labels = pictures(32), rng(1).integers(0, 10, 32)
    optimizer = optim.Adam(model.named_parameters(), 1e-3)
    losses = []
    for _ in range(50):
        model.zero_grad()
        loss = ops.margin_loss(model(Tensor(images)).activations, labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.95 * losses[0]


@pytest.mark.parametrize(
    ("shape", "decoder", "capsules", "parameters"),
    [
        ((1, 28, 28), False, 1152, 6_804_224),
        ((1, 28, 28), True, 1152, 8_215_568),
        ((1, 36, 36), True, 3200, 11_361_808),
        ((1, 28, 40), True, 2304, 10_034_528),
        ((1, 17, 17), False, 32, 20_992 + 5_308_672 + 32 * 10 * 8 * 16),
    ],
)
def test_sizes_of_the_paper_s_capsnet(shape, decoder, capsules, parameters):
    model = models.build("capsnet", shape, 10, decoder=decoder)
    assert model.number_of_parameters() == parameters
    assert model.classes.weight.shape == (capsules, 10, 8, 16)


def test_the_parts_of_the_paper_s_capsnet():
    model = models.build("capsnet", (1, 28, 28), 10)
    parts = [model.convolutions[0], model.primary, model.classes, model.decoder]
    counts = [m.number_of_parameters() for m in parts]
    assert counts == [20_992, 5_308_672, 1_474_560, 1_411_344]


@pytest.mark.parametrize("preset", ["paper", "small"])
@pytest.mark.parametrize("image", [(16, 16), (16, 28), (28, 16)])
def test_too_small_images_are_refused_with_the_minimum(preset, image):
    message = f"{image[0]}×{image[1]} pixels are too small .* at least 17×17"
    with pytest.raises(ValueError, match=message):
        models.build("capsnet", (1, *image), 10, preset=preset)


@pytest.mark.parametrize(
    ("shape", "classes"),
    [((1, 28, 28), 10), ((3, 32, 32), 10), ((2, 17, 30), 2), ((1, 29, 18), 7), ((1, 17, 17), 26)],
)
def test_any_size_channels_and_classes(shape, classes):
    model = models.build("capsnet", shape, classes, preset="small")
    for batch in (0, 1, 3):
        with no_grad():
            routed = model(Tensor(pictures(batch, shape) if batch else np.zeros((0, *shape), "f")))
            drawn = model.reconstruct(routed.poses, np.zeros(batch, int))
        assert routed.poses.shape == (batch, classes, 16)
        assert routed.activations.shape == (batch, classes)
        assert drawn.shape == (batch, *shape)
        assert routed.poses.dtype == drawn.dtype == np.float32


def test_a_capsnet_is_its_layers_one_after_the_other():
    model = a_small_capsnet(squash="half", iterations=2).astype(np.float64)
    x = images = Tensor(draw(2, 1, 17, 17))
    for layer, stride in zip(model.convolutions, (1, 2), strict=True):
        x = ops.relu(ops.conv2d_plain(x, layer.weight, layer.bias, stride=stride))
    conv = model.primary.conv
    maps = ops.conv2d_plain(x, conv.weight, conv.bias, stride=2)
    u = ops.squash(group_channels(maps, 8), kind="half")
    votes = make_votes(u, model.classes.weight)
    expected = agreement_plain(votes, iterations=2, squash="half")
    routed = model(images)
    for a, b in zip(routed, expected, strict=True):
        np.testing.assert_allclose(a.data, b.data, rtol=1e-10)
    keep = np.array([2, 0])
    poses = expected.poses.data * (np.arange(3) == keep[:, None])[..., None]
    drawn = model.reconstruct(routed.poses, keep).data
    np.testing.assert_allclose(drawn, model.decoder(Tensor(poses)).data, rtol=1e-10)


def test_a_sample_does_not_depend_on_its_batch():
    model = a_small_capsnet().astype(np.float64)
    images = draw(4, 1, 17, 17)
    together = model(Tensor(images)).poses.data
    for n in range(4):
        alone = model(Tensor(images[n : n + 1])).poses.data
        np.testing.assert_allclose(alone[0], together[n], rtol=1e-10)


def test_the_gradient_of_a_whole_capsnet():
    model = a_small_capsnet(decoder=False)
    labels = np.array([0, 2])

    class Loss(Module):
        def __init__(self):
            self.model = model

        def forward(self, images):
            return ops.margin_loss(self.model(images).activations, labels)

    check_layer(Loss(), 0.5 * draw(2, 1, 17, 17))


def test_images_of_another_size_are_refused():
    with pytest.raises(ValueError, match=r"with \(C, H, W\) = \(1, 17, 17\), not \(2, 1, 28, 28\)"):
        a_small_capsnet()(Tensor(pictures(2)))


def test_squash_of_the_primary_capsules_can_differ():
    same = a_small_capsnet(squash="half")
    assert (same.primary.squash, same.classes.route.keywords["squash"]) == ("half", "half")
    mixed = a_small_capsnet(squash="half", primary_squash="tanh")
    assert (mixed.primary.squash, mixed.classes.route.keywords["squash"]) == ("tanh", "half")


def test_config_builds_the_same_network_again():
    options = {"preset": "small", "decoder": False, "iterations": 2, "seed": 5}
    model = models.build("capsnet", (1, 17, 20), 4, **options)
    config = dict(model.config)
    again = models.build(
        config.pop("name"), config.pop("input_shape"), config.pop("classes"), **config["options"]
    )
    assert again.config == model.config
    state = model.state_dict()
    assert state.keys() == again.state_dict().keys()
    assert all((state[name] == a).all() for name, a in again.state_dict().items())


def test_a_network_without_decoder_says_so():
    model = a_small_capsnet(decoder=False)
    with pytest.raises(ValueError, match="no decoder: build it with decoder=True"):
        model.reconstruct(Tensor(np.zeros((1, 3, 16))), np.zeros(1, int))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"name": "capsnets"}, ValueError, "unknown model 'capsnets': choose capsnet"),
        ({"preset": "large"}, ValueError, "unknown preset 'large': choose paper, small"),
        ({"input_shape": (28, 28)}, ValueError, r"\(channels, height, width\), not \(28, 28\)"),
        ({"input_shape": (0, 28, 28)}, ValueError, r"\(channels, height, width\), not \(0, 28"),
        ({"classes": 1}, ValueError, "at least 2 classes, not 1"),
        ({"squash": "cube"}, ValueError, "unknown squash 'cube': choose paper"),
        ({"primary_squash": "cube"}, ValueError, "unknown squash 'cube': choose paper"),
        ({"iterations": 0}, ValueError, "at least 1 iteration, not 0"),
        ({"update": "average"}, ValueError, "unknown update 'average': choose accumulate"),
        ({"gradient": "none"}, ValueError, "unknown gradient 'none': choose unrolled"),
        ({"inverse_temperature": -1}, ValueError, "positive and finite, not -1"),
        ({"iteration": 3}, TypeError, "unexpected keyword argument 'iteration'"),
    ],
)
def test_unknown_options_are_refused_before_any_work(change, error, message):
    arguments = {"name": "capsnet", "input_shape": (1, 17, 17), "classes": 3, "preset": "small"}
    with pytest.raises(error, match=message):
        models.build(**arguments | change)


# --- Shared, listed and copied parameters --------------------------------------------------------


def test_a_shared_layer_is_counted_trained_and_moved_once():
    class Tied(Module):
        def __init__(self):
            self.first = Linear(2, 2, np.random.default_rng(0))
            self.second = self.first
            self.third = Linear(2, 2, np.random.default_rng(1))
            self.third.weight = self.first.weight

    model = Tied()
    assert [name for name, _ in model.named_parameters()] == [
        "first.weight",
        "first.bias",
        "third.bias",
    ]
    assert model.number_of_parameters() == 8
    model.astype(np.float64)
    assert model.third.weight is model.first.weight and model.first.weight.dtype == np.float64


def test_parameters_in_lists_and_dictionaries_are_found():
    class Parts(Module):
        def __init__(self):
            self.scales = [Tensor(np.ones(1), True), Tensor(np.ones(2), True)]
            self.layers = {"a": Linear(2, 1, np.random.default_rng(0))}

    names = [name for name, _ in Parts().named_parameters()]
    assert names == ["scales.0", "scales.1", "layers.a.weight", "layers.a.bias"]


def test_parameters_of_one_name_are_refused():
    class Twice(Module):
        def __init__(self):
            self.d = {1: Tensor(np.ones(1), True), "1": Tensor(np.ones(2), True)}

    with pytest.raises(ValueError, match=r"two parameters are called d\.1"):
        Twice().state_dict()


def test_only_floating_point_parameters_can_be_made():
    with pytest.raises(ValueError, match="cannot become int64"):
        Linear(2, 3, np.random.default_rng(0)).astype(np.int64)


def test_a_copied_model_is_trained_on_its_own():
    model = a_small_capsnet()
    clone = copy.deepcopy(model)
    clone(Tensor(pictures(2, (1, 17, 17)))).activations.sum().backward()
    assert all(p.grad is None for p in model.parameters())
    assert clone.classes.weight.grad is not None
    assert clone.classes.weight.data.strides == model.classes.weight.data.strides


def test_a_module_tells_what_it_learns():
    text = repr(Linear(2, 3, np.random.default_rng(0)))
    assert text == "Linear, 9 parameters\n  weight (2, 3) 6\n  bias (3,) 3"
