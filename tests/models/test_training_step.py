"""Test a complete training step: precision, memory, and equal results on the device."""

import gc
from collections import Counter

import numpy as np
import pytest
from tensors import collector_off
from thinning import thinned
from training_steps import make_batch, make_model, step

from minicaps import Tensor, ops
from minicaps.backend import choose_device
from minicaps.graph import Node
from minicaps.optim import SGD, Adam

OPTIMIZERS = {"sgd": SGD, "adam": Adam}
each_optimizer = pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)


# --- Precision -----------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [1e-3, np.float64(1e-3)])
@each_optimizer
def test_a_float32_step_stays_float32(make, rate):
    model = make_model()
    optimizer = make(model.named_parameters(), rate, weight_decay=rate)
    loss, norm = step(model, optimizer, *make_batch(), clip=np.float64(0.1))
    arrays = [loss, norm]
    for p in model.parameters():
        arrays += [p.data, p.grad]
    arrays += optimizer.state.values()
    assert {a.dtype for a in arrays} == {np.dtype(np.float32)}
    assert all(np.isfinite(a).all() for a in arrays)


@each_optimizer
def test_a_step_reaches_every_parameter(make):
    model = make_model()
    before = model.state_dict()
    step(model, make(model.named_parameters()), *make_batch())
    for name, p in model.named_parameters():
        assert p.grad.any(), name
        assert (p.data != before[name]).any(), name


def test_equal_seeds_train_bit_equal():
    states = []
    for _ in range(2):
        model = make_model(seed=3)
        optimizer = Adam(model.named_parameters())
        for _ in range(3):
            step(model, optimizer, *make_batch())
        states.append(model.state_dict())
    assert all((states[0][name] == states[1][name]).all() for name in states[0])


# --- Memory --------------------------------------------------------------------------------------


def alive():
    """Count the tensors and nodes in memory."""
    kinds = Counter(type(o) for o in gc.get_objects())
    return kinds[Tensor], kinds[Node]


@pytest.mark.parametrize("options", thinned([{}, {"gradient": "stop"}, {"update": "spherical"}]))
@each_optimizer
def test_a_step_leaves_nothing_behind(make, options):
    model = make_model(**options)
    optimizer = make(model.named_parameters())
    images, labels = make_batch()
    step(model, optimizer, images, labels)
    gc.collect()
    before = alive()
    with collector_off():
        step(model, optimizer, images, labels)
        assert gc.collect() == 0
    assert alive() == before
    assert before[0] >= len(model.parameters())  # checks that the tensors are counted


def test_backward_frees_the_graph_while_the_loss_lives_on():
    model = make_model(decoder=False)
    images, labels = make_batch()
    gc.collect()
    before = alive()
    loss = ops.margin_loss(model(Tensor(images)).activations, labels)
    during = alive()
    loss.backward()
    tensors, nodes = alive()
    assert during[1] > before[1] + 5
    assert (tensors, nodes) == (before[0] + 1, before[1] + 1)  # the loss and its own node


# --- The device ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    thinned(
        [
            {},
            {"gradient": "stop"},
            {"update": "recompute"},
            {"update": "spherical", "squash": "half"},
        ]
    ),
)
@each_optimizer
def test_the_device_takes_the_same_step_and_nobody_waits_for_it(strict_cupy, make, options):
    def train(device):
        model = make_model(np.float64, device, **options)
        optimizer = make(model.named_parameters(), 1e-3, weight_decay=0.1)
        batch = make_batch(np.float64, device)
        strict_cupy.host_syncs.clear()
        strict_cupy.host_copies.clear()
        loss, norm = step(model, optimizer, *batch)
        assert not strict_cupy.host_syncs
        assert not strict_cupy.host_copies
        gradients = {name: choose_device("cpu").put(p.grad) for name, p in model.named_parameters()}
        return float(loss), float(norm), gradients, model.state_dict(), optimizer.state_dict()

    loss, norm, *on_device = train("gpu")
    expected_loss, expected_norm, *expected = train("cpu")
    assert loss == pytest.approx(expected_loss, rel=1e-12)
    assert norm == pytest.approx(expected_norm, rel=1e-10)
    for ours, theirs in zip(on_device, expected, strict=True):
        assert ours.keys() == theirs.keys()
        for name in ours:
            np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-7, atol=1e-12)


@each_optimizer
def test_a_float32_step_stays_float32_on_the_device(strict_cupy, make):
    model = make_model(device="gpu")
    optimizer = make(model.named_parameters(), np.float64(1e-3), weight_decay=0.1)
    loss, norm = step(model, optimizer, *make_batch(device="gpu"))
    arrays = [
        loss,
        norm,
        *(p.data for p in model.parameters()),
        *(p.grad for p in model.parameters()),
    ]
    arrays += optimizer.state.values()
    assert all(isinstance(a, strict_cupy.ndarray) for a in arrays)
    assert {a.dtype for a in arrays} == {np.dtype(np.float32)}
