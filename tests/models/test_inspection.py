"""Test the inspection of one image: couplings per iteration, positions of children, sweeps."""

import math

import numpy as np
import pytest
from thinning import thinned

from minicaps import Tensor, models, no_grad, ops
from minicaps.backend import choose_device, device_of
from minicaps.models import inspection
from minicaps.models.sizes import ChildrenGrid
from minicaps.nn.matrix import MatrixClassCaps

SIZES = {
    "convolutions": ((4, 5, 1), (4, 5, 2)),
    "primary": (2, 4, 5, 2),
    "capsule_size": 4,
    "hidden": (8,),
}


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setitem(models.CAPSNET_PRESETS, "small", SIZES)
    monkeypatch.setitem(models.MATRIX_PRESETS, "small", (8, 2, 3, 3))


def build(name, shape=(1, 28, 28), classes=3, **options):
    if name in ("capsnet", "matrix-capsnet"):
        options["preset"] = "small"
    return models.build(name, shape, classes, **options).eval()


def picture(shape=(1, 28, 28), seed=0):
    return np.random.default_rng(seed).random(shape, np.float32)


# ---- where the children lie


def test_the_paper_s_grid_by_hand():
    model = models.build("capsnet", (1, 28, 28), 10, decoder=False)
    # 28 - 8 = 20; (20 - 9) // 2 + 1 = 6. A child sees 9 + 8 pixels, 0 to 16, centered at 8.
    assert model.children_grid == ChildrenGrid(6, 6, 32, 8.0, 2)


def children(model, images):
    """Return the inputs of a model's class capsules, (B, rows, columns, values per position)."""
    given = []
    model.classes = lambda *capsules: given.extend(capsules)
    model(images)
    grid = model.children_grid
    parts = [g.reshape(len(images), grid.rows, grid.columns, -1) for g in given]
    return parts[0] if len(parts) == 1 else ops.concatenate(parts, axis=3)


@pytest.mark.parametrize("size", [(28, 28), (30, 37)])
@pytest.mark.parametrize("name", ["capsnet", "capsule-cnn", "matrix-capsnet"])
def test_children_look_where_the_grid_says(name, size):
    # With a single iteration of EM, no child depends on the windows of other children.
    options = {"iterations": 1} if name == "matrix-capsnet" else {}
    model = build(name, (1, *size), **options)
    grid = model.children_grid
    inner = [(r, c) for r in range(1, grid.rows - 1) for c in range(1, grid.columns - 1)]
    for row, column in inner[:1] + inner[-1:]:
        images = Tensor(picture((1, 1, *size)), requires_grad=True)
        there = children(model, images)[:, row, column]
        (there * there).sum().backward()
        for axis, place in ((1, row), (0, column)):
            seen = np.flatnonzero(images.grad[0, 0].any(axis=axis))
            middle = grid.first + grid.step * place
            assert abs((seen[0] + seen[-1]) / 2 - middle) <= 0.5


# ---- iterations

ROUTED = [
    ("capsnet", {}),
    ("capsnet", {"routing": "leaky"}),
    ("capsnet", {"routing": "distance"}),
    ("capsnet", {"update": "recompute", "gradient": "implicit", "iterations": 4}),
    ("capsule-cnn", {}),
    ("matrix-capsnet", {"iterations": 2}),
]


@pytest.mark.filterwarnings("ignore:.*fixed point")
@pytest.mark.parametrize(("name", "options"), ROUTED)
def test_couplings_of_each_iteration_are_those_of_a_network_with_so_many(name, options):
    model = build(name, **options)
    image = picture()
    view = inspection.view(model, image)
    assert len(view.couplings) == options.get("iterations", 3)
    for count, couplings in enumerate(view.couplings, 1):
        if count == 1:
            assert couplings.std() < 1e-6  # all equal
            continue
        other = build(name, **options | {"iterations": count})
        other.load_state_dict(model.state_dict())
        with no_grad():
            routed = other(Tensor(image[None]))
        np.testing.assert_allclose(couplings, routed.couplings.data[0], atol=1e-5)
    np.testing.assert_allclose(view.scores, routed.activations.data[0], atol=1e-5)
    np.testing.assert_allclose(view.poses, routed.poses.data[0], atol=1e-4)
    np.testing.assert_allclose(view.couplings[-1].sum(axis=1), 1, atol=1e-5)
    layer = model.classes if isinstance(model.classes, MatrixClassCaps) else model.classes.routing
    assert "history" not in layer.route.keywords  # restored


def test_learned_couplings_have_one_iteration():
    view = inspection.view(build("capsnet", routing="learned"), picture())
    assert len(view.couplings) == 1
    assert view.couplings[0].shape == (3 * 3 * 2, 3)


@pytest.mark.parametrize("name", thinned(["pooling-cnn", "baseline-cnn"]))
def test_networks_without_capsules(name):
    model = build(name, (1, 14, 14))
    view = inspection.view(model, picture((1, 14, 14)))
    assert view.poses is None and view.couplings == () and model.children_grid is None
    assert view.scores.min() > 0 and view.scores.max() < 1
    if name == "baseline-cnn":  # logits as probabilities
        assert view.scores.sum() == pytest.approx(1)
        with no_grad():
            logits = model(Tensor(picture((1, 1, 14, 14)))).activations.data[0]
        np.testing.assert_allclose(np.diff(np.log(view.scores)), np.diff(logits), rtol=1e-3)
        model.multi = True
        alone = inspection.view(model, picture((1, 14, 14))).scores
        np.testing.assert_allclose(alone, 1 / (1 + np.exp(-logits)), rtol=1e-5)


def test_double_precision_stays():
    view = inspection.view(build("capsnet").astype(np.float64), picture())
    assert view.scores.dtype == view.couplings[0].dtype == np.float64


def test_on_a_device(strict_cupy):
    device = choose_device("gpu")
    here, there = build("capsnet"), build("capsnet").to(device)
    views = [inspection.view(model, picture()) for model in (here, there)]
    for one, other in zip(views[0].couplings, views[1].couplings, strict=True):
        assert device_of(other) == "cpu"
        np.testing.assert_allclose(one, other, atol=1e-5)
    drawn = inspection.sweep(there, views[1].poses, 2, [0.0, 0.1])
    np.testing.assert_allclose(
        drawn, inspection.sweep(here, views[0].poses, 2, [0.0, 0.1]), atol=1e-5
    )
    assert device_of(inspection.first_kernels(there)) == "cpu"


# ---- what is read off


def test_shares_by_hand():
    grid = ChildrenGrid(1, 2, 2, 0.0, 1)
    couplings = np.array([[0.2, 0.8], [0.4, 0.6], [1, 0], [0.5, 0.5]])
    np.testing.assert_allclose(inspection.share_map(couplings, grid, 0), [[0.3, 0.75]])


def test_entropy_by_hand():
    assert inspection.entropy(np.full((5, 4), 0.25, np.float32)) == pytest.approx(math.log(4))
    assert inspection.entropy(np.eye(3, dtype=np.float32)) == 0
    mixed = np.array([[1, 0], [0.5, 0.5]], np.float32)
    assert inspection.entropy(mixed) == pytest.approx(math.log(2) / 2)


def test_a_sweep_moves_one_number_of_one_capsule():
    model, offsets = build("capsnet"), [-0.25, 0.0, 0.25]
    poses = inspection.view(model, picture()).poses
    drawn = inspection.sweep(model, poses, 1, offsets)
    assert drawn.shape == (4, 3, 1, 28, 28)
    as_it_is = inspection.reconstruction(model, poses, 1)
    for d in range(4):
        np.testing.assert_allclose(drawn[d, 1], as_it_is, atol=1e-6)
        moved = poses.copy()
        moved[1, d] += 0.25
        moved[[0, 2]] = 7  # masked
        np.testing.assert_allclose(
            drawn[d, 2], inspection.reconstruction(model, moved, 1), atol=1e-6
        )
        assert abs(drawn[d, 2] - drawn[d, 0]).max() > 1e-4
    assert inspection.reconstruction(build("capsnet", decoder=False), poses, 1) is None


@pytest.mark.parametrize("name", list(models.MODELS))
def test_first_kernels_see_the_picture(name):
    model = build(name, (3, 14, 14) if name == "baseline-cnn" else (3, 28, 28))
    kernels = inspection.first_kernels(model)
    assert kernels.shape[1] == 3
    first = next(p.data for p in model.parameters() if p.ndim == 4 and p.shape[1] == 3)
    np.testing.assert_array_equal(np.sort(kernels, axis=0), np.sort(first, axis=0))
