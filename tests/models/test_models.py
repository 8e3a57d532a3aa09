"""Test the networks: sizes, initial values, outputs, gradients, learning, and input errors."""

import numpy as np
import pytest
from layer_checks import a_small_capsnet, check_layer, pictures, rng
from tensors import draw
from thinning import thinned, thinned_rows

from minicaps import Tensor, models, no_grad, ops, optim
from minicaps.backend import choose_device
from minicaps.models.losses import usual_loss
from minicaps.nn import Module
from minicaps.nn.capsules import group_channels
from minicaps.routing import agreement_plain, make_votes

# --- CapsNet -------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", thinned(models.CAPSNET_PRESETS, ("small",)))
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


@pytest.mark.slow
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


def test_the_parts_of_the_medium_capsnet():
    """28 → 24 → 10 → 3: 3·3·16 = 144 capsules; twice as wide as `small`."""
    model = models.build("capsnet", (1, 28, 28), 10, preset="medium")
    parts = [*model.convolutions, model.primary, model.classes, model.decoder]
    assert [m.number_of_parameters() for m in parts] == [
        64 * (25 + 1),
        128 * (64 * 25 + 1),
        128 * (128 * 25 + 1),
        144 * 10 * 8 * 16,
        (160 + 1) * 256 + (256 + 1) * 512 + (512 + 1) * 784,
    ]
    assert model.number_of_parameters() == 1_375_632


@pytest.mark.parametrize("preset", models.CAPSNET_PRESETS)
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


@pytest.mark.slow
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
    with pytest.raises(ValueError, match=r"with \(C, H, W\) = \(1, 17, 17\), got shape \(2, 1, 28"):
        a_small_capsnet()(Tensor(pictures(2)))


def test_squash_of_the_primary_capsules_can_differ():
    def both(**options):
        model = a_small_capsnet(**options)
        return model.primary.squash, model.classes.routing.route.keywords["squash"]

    assert both(squash="half") == ("half", "half")
    assert both(squash="half", primary_squash="tanh") == ("tanh", "half")


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
    ("change", "message"),
    [
        ({"name": "capsnets"}, "unknown model 'capsnets': choose capsnet, capsule-cnn"),
        ({"preset": "large"}, "unknown preset 'large': choose paper, medium, small"),
        ({"input_shape": (28, 28)}, r"\(channels, height, width\), got \(28, 28\)"),
        ({"input_shape": (0, 28, 28)}, r"\(channels, height, width\), got \(0, 28"),
        ({"classes": 1}, "at least 2 classes, got 1"),
        ({"squash": "cube"}, "unknown squash 'cube': choose paper"),
        ({"primary_squash": "cube"}, "unknown squash 'cube': choose paper"),
        ({"iterations": 0}, "takes 1 to 10,000 iterations, not 0"),
        ({"update": "average"}, "unknown update 'average': choose accumulate"),
        ({"gradient": "none"}, "unknown gradient 'none': choose unrolled"),
        ({"inverse_temperature": -1}, "positive and finite, not -1"),
        ({"iteration": 3}, "capsnet has no option iteration: choose from preset, "),
        ({"routing": "em"}, "unknown routing 'em': choose agreement"),
        ({"routing": "learned", "update": "recompute"}, "learned routing has no option update"),
        ({"name": "baseline-cnn", "preset": None}, "baseline-cnn has no option preset"),
    ],
)
def test_unknown_options_are_refused_before_any_work(change, message):
    arguments = {"name": "capsnet", "input_shape": (1, 17, 17), "classes": 3, "preset": "small"}
    with pytest.raises(ValueError, match=message):
        models.build(**arguments | change)


class Recorder(Module):
    """Decoder that records its input."""

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


def test_equal_seeds_make_equal_networks():
    a, b, c = (a_small_capsnet(seed=s).state_dict() for s in (1, 1, 2))
    assert all((a[name] == b[name]).all() for name in a)
    weights = [name for name in a if name.endswith("weight")]
    assert not any((a[name] == c[name]).any() for name in weights)
    assert {x.dtype for x in a.values()} == {np.dtype(np.float32)}


# --- Networks of convolutions --------------------------------------------------------------------

SIZELESS = ["capsule-cnn", "pooling-cnn"]


@pytest.mark.parametrize(
    ("name", "shape", "classes", "options", "parameters"),
    [
        ("capsule-cnn", (1, 28, 28), 10, {}, 279_488),
        ("capsule-cnn", (1, 40, 33), 10, {}, 279_488),
        ("capsule-cnn", (3, 14, 14), 5, {}, 279_488 + 2 * 9 * 64 - 5 * 128 * 16),
        ("capsule-cnn", (1, 28, 28), 10, {"batch_norm": True}, 279_488 + 64 + 64 + 128 + 128),
        ("capsule-cnn", (1, 28, 28), 10, {"routing": "learned"}, 279_488 + 8 * 8 * 10),
        ("pooling-cnn", (1, 28, 28), 10, {}, 276_810),
        ("pooling-cnn", (3, 14, 20), 5, {}, 276_810 + 2 * 9 * 64 - 5 * 129),
        ("pooling-cnn", (1, 28, 28), 10, {"pooling": "max"}, 276_810),
        ("pooling-cnn", (1, 28, 28), 10, {"batch_norm": True}, 276_810 + 64 + 64 + 128 + 128),
        pytest.param(
            "baseline-cnn", (1, 28, 28), 10, {}, 35_445_522, marks=pytest.mark.slow
        ),
        (
            "baseline-cnn",
            (3, 2, 3),
            4,
            {"batch_norm": True},
            (25 * 3 + 2) * 256 + (25 * 256 + 2) * 256 + (25 * 256 + 2) * 128
            + (6 * 128 + 1) * 328 + 329 * 192 + 193 * 4,
        ),
    ],
)  # fmt: skip
def test_sizes_of_the_networks_of_convolutions(name, shape, classes, options, parameters):
    model = models.build(name, shape, classes, **options)
    assert model.number_of_parameters() == parameters


def features_plain(model, images):
    """Apply the convolutions that the capsule and pooling networks share, layer by layer."""
    x = images
    for k, layer in enumerate(model.features.convolutions):
        x = ops.avg_pool2d(x, window=2, stride=2) if k == 2 else x
        x = ops.conv2d_plain(x, layer.conv.weight, layer.conv.bias)
        x = ops.relu(layer.norm(x) if layer.norm else x)
    return x


def capsule_cnn_plain(model, images):
    u = features_plain(model, images)
    votes = ops.einsum("bnpq,jnd->bpqjd", u, model.classes.weight)
    votes = votes.reshape(len(u), -1, *votes.shape[3:])
    return agreement_plain(votes, iterations=3, update="spherical", squash="half").activations


def pooling_cnn_plain(model, images):
    x = features_plain(model, images)
    pooled = {"mean": ops.mean, "sum": ops.mean, "max": ops.max}[model.pooling]
    x = pooled(pooled(x, axis=3), axis=2)
    x = ops.relu(x @ model.hidden.weight + model.hidden.bias)
    return 1 / (1 + ops.exp(-(x @ model.classes.weight + model.classes.bias)))


def baseline_cnn_plain(model, images):
    x = images
    for layer in model.convolutions:
        x = ops.conv2d_plain(x, layer.conv.weight, layer.conv.bias, padding=2)
        x = ops.relu(layer.norm(x) if layer.norm else x)
    x = x.transpose(0, 2, 3, 1).reshape(len(images), -1)
    for layer in model.hidden:
        x = ops.relu(x @ layer.weight + layer.bias)
    return x @ model.classes.weight + model.classes.bias


def test_a_sum_grows_with_the_image_and_a_maximum_does_not():
    features = draw(2, 128, 3, 2)  # as of one image; then of two, one below the other
    twice = np.concatenate([features, features], axis=2)
    for pooling, factor in (("mean", 1), ("sum", 2), ("max", 1)):
        model = models.build("pooling-cnn", (1, 18, 16), 3, pooling=pooling)
        one, two = (model.pooled(Tensor(maps)).data for maps in (features, twice))
        assert model.positions == 6
        np.testing.assert_allclose(two, factor * one, rtol=1e-12)
    with pytest.raises(ValueError, match="unknown pooling 'least': choose mean, sum, max"):
        models.build("pooling-cnn", (1, 18, 16), 3, pooling="least")


def test_positions_that_share_matrices_sum_their_votes():
    """With one iteration, a capsule is a linear map of the sum over positions, then squashed."""
    options = {"preset": "small", "shared": True, "iterations": 1, "decoder": False}
    model = models.build("capsnet", (1, 20, 24), 5, **options).astype(np.float64)
    images = Tensor(draw(3, 1, 20, 24))
    children = model.primary_capsules(images)
    assert children.shape == (3, 2, 64) and tuple(model.children_grid[:3]) == (1, 2, 1)
    assert model.classes.weight.shape == (5, 64, 16)
    apart = models.build("capsnet", (1, 20, 24), 5, **options | {"shared": False})
    for own, other in zip(apart.convolutions, model.convolutions, strict=True):
        np.testing.assert_allclose(own.weight.data, other.weight.data, rtol=1e-6)
    s = np.einsum("bn,jnd->bjd", children.data.sum(axis=1) / 5, model.classes.weight.data)
    v = ops.squash(Tensor(s)).data
    np.testing.assert_allclose(model(images).poses.data, v, rtol=1e-10)
    assert model(Tensor(np.zeros((0, 1, 20, 24)))).activations.shape == (0, 5)


@pytest.mark.parametrize("squash", ["paper", "none"])
def test_a_fresh_capsnet_with_shared_matrices_is_neither_dead_nor_saturated(squash):
    options = {"preset": "small", "shared": True, "squash": squash}
    model = models.build("capsnet", (1, 28, 28), 10, iterations=1, **options)
    lengths = model(Tensor(pictures(4))).activations.data
    assert lengths.min() > 0.02 and lengths.max() < (0.98 if squash == "paper" else 10)


@pytest.mark.parametrize("batch_norm", thinned([False, True], (True,)))
@pytest.mark.parametrize(
    ("name", "shape", "options", "plain"),
    thinned_rows(
        [
            ("capsule-cnn", (2, 18, 15), {}, capsule_cnn_plain),
            ("pooling-cnn", (2, 18, 15), {}, pooling_cnn_plain),
            ("pooling-cnn", (2, 18, 15), {"pooling": "sum"}, pooling_cnn_plain),
            ("pooling-cnn", (2, 18, 15), {"pooling": "max"}, pooling_cnn_plain),
            ("baseline-cnn", (2, 3, 4), {"dropout": 0}, baseline_cnn_plain),
        ],
        2,
    ),
)
def test_a_network_is_its_layers_one_after_the_other(name, shape, options, plain, batch_norm):
    model = models.build(name, shape, 3, batch_norm=batch_norm, **options).astype(np.float64)
    for n, p in enumerate(model.parameters()):
        if not p.data.any():  # biases and shifts
            p.data = 0.1 * draw(*p.shape, seed=n)
    images, scores, gradients = Tensor(draw(2, *shape)), [], []
    for forward in (lambda x: model(x).activations, lambda x: plain(model, x)):
        model.zero_grad()
        scores.append(forward(images))
        scores[-1].backward(draw(2, 3, seed=9))
        gradients.append([p.grad for p in model.parameters()])
    np.testing.assert_allclose(scores[0].data, scores[1].data, rtol=1e-9)
    for ours, theirs in zip(*gradients, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-9 * abs(theirs).max())


@pytest.mark.parametrize("name", thinned(["pooling-cnn", "baseline-cnn"]))
def test_networks_without_capsules_have_no_poses_and_no_couplings(name):
    routed = models.build(name, (1, 14, 14), 3)(Tensor(pictures(2, (1, 14, 14))))
    assert routed.poses is None and routed.couplings is None


@pytest.mark.slow
def test_the_baseline_drops_half_of_its_last_hidden_layer_in_training_only():
    def last_hidden(model):
        seen = []
        model.classes.forward = lambda x: seen.append(x.data) or x
        model(Tensor(pictures(20, (1, 6, 6))))
        return seen[0]

    model = models.build("baseline-cnn", (1, 6, 6), 3)
    kept = last_hidden(model.eval())
    model.train().reseed(0)
    dropped = last_hidden(model)
    alive = kept > 0
    assert (dropped[alive] == 0).mean() == pytest.approx(0.5, abs=0.06)
    np.testing.assert_allclose(dropped[dropped > 0], 2 * kept[dropped > 0], rtol=1e-5)
    whole = models.build("baseline-cnn", (1, 6, 6), 3, dropout=0)
    np.testing.assert_array_equal(last_hidden(whole), kept)


class Loss(Module):
    """Network followed by its loss on fixed labels."""

    def __init__(self, model, labels):
        self.model, self.labels = model, labels

    def forward(self, images):
        scores = self.model(images).activations
        loss = ops.cross_entropy if self.model.logits else ops.margin_loss
        return loss(scores, self.labels)


TRAINED = {
    "capsule-cnn": (1, 14, 14),
    "pooling-cnn": (1, 14, 14),
    "baseline-cnn": (1, 4, 4),
}


@pytest.mark.slow
@pytest.mark.parametrize("batch_norm", [False, True])
@pytest.mark.parametrize(("name", "shape"), TRAINED.items())
def test_a_network_of_convolutions_learns_a_batch(name, shape, batch_norm):
    model = models.build(name, shape, 4, batch_norm=batch_norm)
    images = Tensor(rng().random((8, *shape), np.float32))
    loss = Loss(model, rng(1).integers(0, 4, 8))
    optimizer = optim.Adam(model.named_parameters(), 1e-3)
    with no_grad():
        before = loss(images).item()
    for step in range(20):
        model.zero_grad()
        model.reseed(0, step)
        loss(images).backward()
        optimizer.step()
    with no_grad():
        assert loss(images).item() < 0.8 * before
    arrays = [p.data for p in model.parameters()] + [p.grad for p in model.parameters()]
    assert {a.dtype for a in [*arrays, *model.state_dict().values()]} == {np.dtype(np.float32)}


@pytest.mark.parametrize("options", [{}, {"batch_norm": True}, {"routing": "learned"}])
@pytest.mark.parametrize("shape", thinned([(1, 14, 14), (3, 20, 15)]))
@pytest.mark.parametrize("seed", thinned([0, 1]))
def test_a_fresh_capsule_cnn_is_neither_dead_nor_saturated(shape, options, seed):
    model = models.build("capsule-cnn", shape, 10, seed=seed, **options)
    with no_grad():
        for images in (pictures(4, shape), rng().random((4, *shape), np.float32)):
            lengths = model(Tensor(images)).activations.data
            assert 0.02 < lengths.mean() < 0.98


@pytest.mark.parametrize("name", SIZELESS)
def test_the_same_network_takes_images_of_any_size_from_14(name):
    model = models.build(name, (1, 20, 20), 5)
    for size in [(14, 14), (14, 40), (33, 17)]:
        for batch in (0, 1, 2):
            images = np.ones((batch, 1, *size), np.float32)
            with no_grad():
                scores = model(Tensor(images)).activations
            assert scores.shape == (batch, 5) and scores.dtype == np.float32


@pytest.mark.parametrize("name", SIZELESS)
@pytest.mark.parametrize("size", [(13, 14), (14, 13), (1, 100)])
def test_images_below_14_are_refused_when_building_and_later(name, size):
    message = f"{size[0]}×{size[1]} pixels are too small .* at least 14×14"
    with pytest.raises(ValueError, match=message):
        models.build(name, (1, *size), 5)
    with pytest.raises(ValueError, match=message):
        models.build(name, (1, 20, 20), 5)(Tensor(np.ones((1, 1, *size), np.float32)))


def test_images_with_other_channels_or_sizes_are_refused():
    for name in SIZELESS:
        with pytest.raises(ValueError, match="the images have 3 channels but the kernels 1"):
            models.build(name, (1, 20, 20), 5)(Tensor(np.ones((1, 3, 20, 20), np.float32)))
    baseline = models.build("baseline-cnn", (1, 4, 5), 5)
    with pytest.raises(ValueError, match=r"with \(C, H, W\) = \(1, 4, 5\), got shape \(1, 1, 5"):
        baseline(Tensor(np.ones((1, 1, 5, 4), np.float32)))
    capsules = models.build("capsule-cnn", (1, 20, 20), 5, routing="learned")
    with pytest.raises(ValueError, match="for 16 children and 5 parents, not 25 and 5"):
        capsules(Tensor(np.ones((1, 1, 22, 22), np.float32)))


@pytest.mark.parametrize(
    "options", [{"routing": "learned"}, {"iterations": 1}, {"update": "accumulate"}]
)
def test_capsule_cnn_takes_what_leaves_no_room_for_its_own_update(options):
    model = models.build("capsule-cnn", (1, 14, 14), 3, **options)
    assert model.classes.routing.route.keywords.get("update") == options.get("update")


@pytest.mark.parametrize("name", thinned(TRAINED, 2))
def test_a_network_is_built_again_from_its_config_and_state(name):
    shape = TRAINED[name]
    model = models.build(name, shape, 3, batch_norm=True, seed=4)
    with no_grad():
        model(Tensor(pictures(3, shape)))  # updates the running statistics
    again = models.build(name, shape, 3, **model.config["options"] | {"seed": 5})
    again.load_state_dict(model.state_dict())
    images = Tensor(pictures(2, shape, seed=1))
    with no_grad():
        ours, theirs = (m.eval()(images).activations.data for m in (model, again))
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", thinned(TRAINED, 2))
def test_the_device_computes_the_same_and_nobody_waits_for_it(strict_cupy, name):
    shape, results = TRAINED[name], []
    for device in map(choose_device, ("cpu", "gpu")):
        model = models.build(name, shape, 3, batch_norm=True).astype(np.float64).to(device)
        model.reseed(1)
        loss = Loss(model, device.put(np.array([0, 2])))
        strict_cupy.host_syncs.clear()
        value = loss(Tensor(device.put(draw(2, *shape))))
        value.backward()
        assert not strict_cupy.host_syncs
        put = choose_device("cpu").put
        gradients = [put(p.grad) for p in model.parameters()]
        results.append([put(value.data), *gradients, *model.state_dict().values()])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-11 * abs(theirs).max())


def test_every_network_says_its_loss():
    said = {name: (usual_loss(name), model.logits) for name, model in models.MODELS.items()}
    assert said["capsnet"] == said["capsule-cnn"] == said["pooling-cnn"] == ("margin", False)
    assert said["baseline-cnn"] == ("cross-entropy", True)
