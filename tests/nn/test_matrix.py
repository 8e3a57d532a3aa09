"""Matrix capsules: votes, windows, coordinates and the network."""

import numpy as np
import pytest
from thinning import thinned

from minicaps import Tensor, no_grad, ops
from minicaps.gradcheck import check_gradients
from minicaps.models import MATRIX_PRESETS, build
from minicaps.nn import MatrixClassCaps, MatrixConvCaps, MatrixPrimaryCaps
from minicaps.nn.matrix import matrix_votes
from minicaps.optim import Adam
from minicaps.routing.couplings import Windows
from minicaps.routing.em import em

RNG = np.random.default_rng(3)
POSES = RNG.normal(size=(2, 5, 6, 3, 4, 4))  # (B, H, W, T, 4, 4)
ACTIVATIONS = RNG.uniform(0.1, 0.9, POSES.shape[:4])
GRID = Tensor(POSES), Tensor(ACTIVATIONS)


def in_float64(layer, seed=1):
    """Give all parameters random values in double precision."""
    rng = np.random.default_rng(seed)
    for p in layer.astype(np.float64).parameters():
        p.data = rng.normal(size=p.shape) * 0.5
    return layer


def test_a_vote_is_a_pose_times_a_matrix():
    poses, weight = RNG.normal(size=(2, 3, 4, 4)), RNG.normal(size=(3, 5, 4, 4))
    votes = matrix_votes(Tensor(poses), Tensor(weight)).data
    assert votes.shape == (2, 3, 5, 16)
    np.testing.assert_allclose(votes, (poses[:, :, None] @ weight).reshape(2, 3, 5, 16), rtol=1e-12)


def test_windows_hold_the_children_of_their_places():
    windows = Windows((5, 6), 2, 2, 3)
    held = windows.gather(GRID[0]).data.reshape(2, 2, 3, 2, 2, 3, 4, 4)
    np.testing.assert_array_equal(held[1, 1, 2], POSES[1, 2:4, 4:6])
    assert windows.gather(GRID[1]).shape == (12, 12)


def test_primary_capsules_are_one_pose_and_one_activation_of_each_type():
    layer = in_float64(MatrixPrimaryCaps(7, 3, RNG))
    x = RNG.normal(size=(2, 7, 5, 6))
    poses, activations = layer(Tensor(x))
    weight, bias = layer.conv.weight.data[:, :, 0, 0], layer.conv.bias.data
    features = weight @ x[1, :, 4, 2] + bias
    np.testing.assert_allclose(poses.data[1, 4, 2, 1], features[16:32].reshape(4, 4), rtol=1e-10)
    np.testing.assert_allclose(
        activations.data[1, 4, 2], 1 / (1 + np.exp(-features[48:])), rtol=1e-10
    )


def test_a_window_as_large_as_the_grid_is_dense_em_routing():
    layer = in_float64(MatrixConvCaps(3, 4, 5, RNG, inverse_temperature=0.1))
    square = Tensor(POSES[:, :, :5]), Tensor(ACTIVATIONS[:, :, :5])
    routed = layer(*square)
    votes = matrix_votes(square[0].reshape(2, 75, 4, 4), layer.weight)
    dense = em(votes, square[1].reshape(2, 75), layer.beta_u, layer.beta_a, inverse_temperature=0.1)
    assert routed.poses.shape == (2, 1, 1, 4, 4, 4) and routed.couplings.shape == (2, 1, 1, 75, 4)
    np.testing.assert_allclose(routed.poses.data.reshape(2, 4, 16), dense.poses.data, rtol=1e-10)
    np.testing.assert_allclose(routed.activations.data[:, 0, 0], dense.activations.data)


def test_windows_that_share_no_child_are_routed_alone():
    layer = in_float64(MatrixConvCaps(3, 4, 2, RNG, stride=2))
    routed = layer(*GRID)
    part = layer(Tensor(POSES[:, 2:4, 4:6]), Tensor(ACTIVATIONS[:, 2:4, 4:6]))
    for whole, alone in zip(routed, part, strict=True):
        np.testing.assert_allclose(whole.data[:, 1, 2], alone.data[:, 0, 0], rtol=1e-10)


def test_windows_compete_for_the_children_they_share():
    """Routing each window alone, a known pitfall, gives a different result."""
    layer = in_float64(MatrixConvCaps(3, 4, 2, RNG, stride=1))
    whole = layer(*GRID)
    alone = layer(Tensor(POSES[:, :2, :2]), Tensor(ACTIVATIONS[:, :2, :2]))
    assert np.abs(whole.poses.data[:, 0, 0] - alone.poses.data[:, 0, 0]).max() > 0.01
    assert whole.couplings.data[:, 1, 1].sum(axis=-1).max() < 1
    np.testing.assert_allclose(alone.couplings.data.sum(axis=-1), 1, rtol=1e-12)


def test_class_capsules_share_matrices_and_are_told_the_place():
    layer = in_float64(MatrixClassCaps(3, 4, RNG, iterations=1))
    routed = layer(*GRID)
    votes = (POSES[:, :, :, :, None] @ layer.weight.data).reshape(2, 5, 6, 3, 4, 16)
    votes[..., 3] += ((np.arange(5) + 0.5) / 5)[:, None, None, None]
    votes[..., 7] += ((np.arange(6) + 0.5) / 6)[:, None, None]
    weights = ACTIVATIONS / ACTIVATIONS.sum(axis=(1, 2, 3), keepdims=True)
    np.testing.assert_allclose(
        routed.poses.data, (weights[..., None, None] * votes).sum(axis=(1, 2, 3)), rtol=1e-10
    )
    assert routed.couplings.shape == (2, 90, 4)


def test_only_coordinates_tell_matrix_capsules_from_their_negatives():
    """EM routing compares votes with their means, which change sign too (Peer et al. 2021)."""
    for layer, blind in (
        (MatrixConvCaps(3, 4, 3, RNG), True),
        (MatrixClassCaps(3, 4, RNG), False),  # adds coordinates to the votes
    ):
        in_float64(layer)
        there, negative = (layer(Tensor(x), GRID[1]) for x in (POSES, -POSES))
        same = np.allclose(negative.activations.data, there.activations.data, rtol=1e-9)
        assert same == blind


@pytest.mark.parametrize("stride", thinned([1, 2], (2,)))
def test_gradients_of_convolutional_capsules(stride):
    layer = in_float64(MatrixConvCaps(1, 2, 2, RNG, stride=stride, inverse_temperature=0.3))
    check_layer(layer, POSES[:, :3, :4, :1], ACTIVATIONS[:, :3, :4, :1])


def test_gradients_of_class_capsules():
    layer = in_float64(MatrixClassCaps(1, 2, RNG, inverse_temperature=0.3))
    check_layer(layer, POSES[:, :2, :3, :1], ACTIVATIONS[:, :2, :3, :1])


def check_layer(layer, poses, activations):
    """Check the gradients of a layer's inputs and parameters against central differences."""

    def function(poses, activations, *parameters):
        layer.weight, layer.beta_u, layer.beta_a = parameters
        return layer(poses, activations)[:2]

    check_gradients(function, poses, activations, *[p.data for p in layer.parameters()])


def test_the_network_has_the_parameters_of_the_paper():
    assert build("matrix-capsnet", (1, 28, 28), 10, preset="small").number_of_parameters() == 68_444
    paper = build("matrix-capsnet", (1, 28, 28), 10).number_of_parameters()
    a, b, c, d = MATRIX_PRESETS["paper"]
    expected = 26 * a + (a + 1) * 17 * b + 9 * 16 * b * c + 2 * c + 9 * 16 * c * d + 2 * d
    assert paper == expected + 16 * d * 10 + 20 == 318_964


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 13, 20)])
@pytest.mark.parametrize("batch", [0, 1, 3])
def test_the_network_takes_any_batch_and_image(shape, batch):
    model = build("matrix-capsnet", shape, 4, preset="small")
    images = RNG.random((batch, *shape), dtype=np.float32)
    routed = model(Tensor(images))
    assert routed.poses.shape == (batch, 4, 16) and routed.activations.shape == (batch, 4)
    assert routed.poses.dtype == routed.activations.dtype == np.float32
    larger = model(Tensor(RNG.random((1, shape[0], 30, 31), dtype=np.float32)))
    assert larger.activations.shape == (1, 4)


def test_images_too_small_are_refused():
    with pytest.raises(ValueError, match="12×28 pixels are too small"):
        build("matrix-capsnet", (1, 12, 28), 10)
    model = build("matrix-capsnet", (1, 13, 13), 10, preset="small")
    with pytest.raises(ValueError, match="at least 13×13"):
        model(Tensor(np.zeros((1, 1, 12, 13), np.float32)))


@pytest.mark.slow
def test_a_fresh_network_is_neither_dead_nor_saturated_and_learns():
    model = build("matrix-capsnet", (1, 16, 16), 3, preset="small", batch_norm=True)
    images, labels = RNG.random((12, 1, 16, 16), dtype=np.float32), np.arange(12) % 3
    images[np.arange(12), 0, 4 * labels] = 1
    adam, losses = Adam(model.named_parameters(), 0.01), []
    for step in range(12):
        routed = model(Tensor(images))
        if step == 0:
            assert 0.1 < routed.activations.data.min() <= routed.activations.data.max() < 0.99
        loss = ops.spread_loss(routed.activations, labels, margin=0.5)
        losses.append(loss.item())
        model.zero_grad()
        loss.backward()
        adam.step()
    assert losses[-1] < 0.95 * losses[0]
    assert {p.dtype for p in model.parameters()} == {np.dtype(np.float32)}


def test_wrong_options_are_refused_when_the_network_is_built():
    for option, message in [
        ({"iterations": 0}, "takes 1 to 10,000 iterations"),
        ({"gradient": "implicit"}, "unrolled or stop"),
        ({"step": "gmm"}, "does not use activations"),
        ({"preset": "large"}, "unknown preset"),
        ({"inverse_temperature": -1}, "positive and finite"),
    ]:
        with pytest.raises(ValueError, match=message):
            build("matrix-capsnet", (1, 28, 28), 10, **option)


def test_the_device_computes_the_same(strict_cupy):
    def on(xp):
        layer = in_float64(MatrixConvCaps(3, 4, 2, np.random.default_rng(0)))
        last = in_float64(MatrixClassCaps(4, 2, np.random.default_rng(0)))
        for p in [*layer.parameters(), *last.parameters()]:
            p.move(xp.asarray(p.data))
        leaves = [Tensor(xp.asarray(a), requires_grad=True) for a in (POSES, ACTIVATIONS)]
        routed = last(*layer(*leaves)[:2])
        (routed.poses.sum() + routed.activations.sum()).backward()
        gradients = [p.grad for p in [*leaves, *layer.parameters(), *last.parameters()]]
        return [*(x.data for x in routed), *gradients]

    found = on(strict_cupy)
    assert not strict_cupy.host_syncs
    for x, y in zip(found, on(np), strict=True):
        np.testing.assert_allclose(x.get(), y, rtol=1e-9, atol=1e-11)


def test_evaluation_keeps_no_graph():
    model = build("matrix-capsnet", (1, 13, 13), 2, preset="small").eval()
    with no_grad():
        assert not model(Tensor(np.zeros((1, 1, 13, 13), np.float32))).poses.requires_grad


@pytest.mark.parametrize("activations", [(2, 6, 5, 3), (4, 5, 6, 3), (2, 5, 6)])
def test_poses_and_activations_that_do_not_fit_are_refused(activations):
    for layer in (MatrixConvCaps(3, 4, 2, RNG), MatrixClassCaps(3, 4, RNG)):
        with pytest.raises(ValueError):
            layer(GRID[0], Tensor(np.ones(activations)))


@pytest.mark.parametrize("types", [1, 2, 6])
def test_capsules_of_other_types_than_the_matrices_are_refused(types):
    poses = Tensor(np.ones((2, 5, 6, types, 4, 4)))
    for layer in (MatrixConvCaps(3, 4, 2, RNG), MatrixClassCaps(3, 4, RNG)):
        with pytest.raises(ValueError, match=r"poses .* and matrices .* do not match"):
            layer(poses, Tensor(np.ones(poses.shape[:4])))


@pytest.mark.parametrize(
    ("poses", "weight"),
    [
        ((2, 3, 4, 4), (1, 5, 4, 4)),
        ((2, 3, 4, 4), (3, 5, 3, 3)),
        ((2, 3, 3, 4), (3, 5, 4, 4)),
        ((2, 3, 16), (3, 5, 4, 4)),
    ],
)
def test_poses_and_matrices_that_do_not_fit_are_refused(poses, weight):
    with pytest.raises(ValueError, match=r"poses .* and matrices .* do not match"):
        matrix_votes(Tensor(np.ones(poses)), Tensor(np.ones(weight)))


@pytest.mark.parametrize("poses", [np.int64, np.float32, np.float64])
@pytest.mark.parametrize("weight", [np.float32, np.float64])
def test_votes_have_the_wider_precision_of_poses_and_matrices(poses, weight):
    P, W = np.arange(96).reshape(2, 3, 4, 4).astype(poses), np.full((3, 5, 4, 4), 0.1, weight)
    weight = Tensor(W, requires_grad=True)
    votes = matrix_votes(Tensor(P), weight)
    assert votes.dtype == np.result_type(P, W)
    expected = np.einsum("nixy,ijyz->nijxz", P, W).reshape(2, 3, 5, 16)
    np.testing.assert_allclose(votes.data, expected, rtol=1e-6)
    votes.sum().backward()
    assert weight.grad.dtype == W.dtype
    expected = np.broadcast_to(P.sum(axis=(0, 2))[:, None, :, None], W.shape)
    np.testing.assert_allclose(weight.grad, expected, rtol=1e-6)


def test_a_frozen_input_gets_no_gradient_and_may_be_of_integers():
    layer = MatrixConvCaps(3, 4, 2, RNG)
    poses = Tensor(POSES, requires_grad=True)
    layer(poses, Tensor(np.ones(ACTIVATIONS.shape, bool))).poses.sum().backward()
    assert poses.grad.shape == POSES.shape
