"""Optimizers against their formulas, clipping, schedules, and what a step may modify."""

import math

import numpy as np
import pytest

from minicaps import Tensor
from minicaps.nn import Conv2d, DenseCaps, Linear, Module
from minicaps.optim import SCHEDULES, SGD, Adam, clip_gradient_norm

STEPS = 7
SHAPES = {"weight": (3, 4), "bias": (4,), "scale": ()}


def draw(shape, seed):
    return np.array(np.random.default_rng(seed).normal(size=shape))


def parameters(dtype=np.float64):
    """Return a weight in an unusual memory layout, a bias and a 0-d scale."""
    made = {}
    for n, (name, shape) in enumerate(SHAPES.items()):
        data = np.asfortranarray(draw(shape, n).astype(dtype)).reshape(shape, order="A")
        made[name] = Tensor(data, requires_grad=True)
    return made


def gradient(name, step, dtype=np.float64):
    return draw(SHAPES[name], [step, len(name)]).astype(dtype)


def train(optimizer, steps=STEPS, start=0):
    """Take steps with known gradients; return the resulting parameters."""
    for step in range(start, start + steps):
        for name, p in optimizer.parameters.items():
            p.grad = gradient(name, step, p.dtype)
        optimizer.step()
    return {name: p.data for name, p in optimizer.parameters.items()}


def assert_follows(optimizer, update):
    """Compare `optimizer` with update(p, g, t, memory), one entry of one parameter at a time."""
    start = {name: p.data.copy() for name, p in optimizer.parameters.items()}
    trained = train(optimizer)
    for name, shape in SHAPES.items():
        for index in np.ndindex(shape):
            p, memory = float(start[name][index]), [0.0, 0.0]
            for step in range(STEPS):
                p = update(p, float(gradient(name, step)[index]), step + 1, memory)
            assert trained[name][index] == pytest.approx(p, rel=1e-12, abs=1e-12)


# --- Formulas ------------------------------------------------------------------------------------


@pytest.mark.parametrize("decay", [0, 0.3])
@pytest.mark.parametrize("momentum", [0, 0.9])
def test_sgd(momentum, decay):
    def update(p, g, t, memory):
        memory[0] = momentum * memory[0] + g
        return p - 0.05 * decay * p - 0.05 * memory[0]

    optimizer = SGD(parameters(), 0.05, momentum=momentum, weight_decay=decay)
    assert_follows(optimizer, update)


@pytest.mark.parametrize("decay", [0, 0.3])
@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.5, 0.8)])
def test_adam(betas, decay):
    def update(p, g, t, memory):
        memory[0] = betas[0] * memory[0] + (1 - betas[0]) * g
        memory[1] = betas[1] * memory[1] + (1 - betas[1]) * g * g
        mean, square = memory[0] / (1 - betas[0] ** t), memory[1] / (1 - betas[1] ** t)
        return p - 0.05 * decay * p - 0.05 * mean / (math.sqrt(square) + 1e-3)

    optimizer = Adam(parameters(), 0.05, betas=betas, eps=1e-3, weight_decay=decay)
    assert_follows(optimizer, update)


def test_defaults():
    sgd, adam = SGD(parameters()), Adam(parameters())
    assert (sgd.learning_rate, sgd.momentum, sgd.weight_decay) == (0.1, 0.9, 0)
    assert (adam.learning_rate, adam.betas, adam.eps) == (1e-3, (0.9, 0.999), 1e-8)
    assert adam.weight_decay == 0


def test_the_first_step_of_adam_is_the_learning_rate():
    p = Tensor(np.zeros(3), requires_grad=True)
    p.grad = np.array([1e-3, 5.0, -2e4])
    Adam([("p", p)], 0.01).step()
    np.testing.assert_allclose(p.data, [-0.01, -0.01, 0.01], rtol=1e-4)


def test_weight_decay_does_not_pass_through_the_gradient():
    for optimizer in (SGD(parameters(), 0.1, weight_decay=0.5), Adam(parameters(), 0.1)):
        optimizer.weight_decay = 0.5
        before = {name: p.data.copy() for name, p in optimizer.parameters.items()}
        for p in optimizer.parameters.values():
            p.grad = np.zeros_like(p.data)
        optimizer.step()
        for name, p in optimizer.parameters.items():
            np.testing.assert_allclose(p.data, 0.95 * before[name], rtol=1e-12)
        assert not any(a.any() for a in optimizer.state.values())


def test_the_learning_rate_can_change_between_steps():
    p = Tensor(np.zeros(1), requires_grad=True)
    optimizer = SGD([("p", p)], 1.0, momentum=0)
    for optimizer.learning_rate in (1.0, 0.1, 0.01):
        p.grad = np.ones(1)
        optimizer.step()
    assert p.data[0] == pytest.approx(-1.11)


@pytest.mark.parametrize("name", ["SGD", "SGD momentum", "AdamW"])
def test_torch_does_the_same(name):
    torch = pytest.importorskip("torch")
    ours, theirs = parameters(), [torch.tensor(p.data) for p in parameters().values()]
    if name == "AdamW":
        optimizer = Adam(ours, 0.05, weight_decay=0.3)
        reference = torch.optim.AdamW(theirs, 0.05, weight_decay=0.3)
    else:
        momentum = 0.9 if "momentum" in name else 0
        optimizer = SGD(ours, 0.05, momentum=momentum)
        reference = torch.optim.SGD(theirs, 0.05, momentum=momentum)
    for step in range(STEPS):
        for parameter, tensor in zip(ours, theirs, strict=True):
            tensor.grad = torch.tensor(gradient(parameter, step))
        reference.step()
    for a, b in zip(train(optimizer).values(), theirs, strict=True):
        np.testing.assert_allclose(a, b.numpy(), rtol=1e-12)


# --- Precision -----------------------------------------------------------------------------------

MAKERS = {
    "sgd": lambda p, number: SGD(p, number(0.1), momentum=number(0.9), weight_decay=number(0.1)),
    "plain sgd": lambda p, number: SGD(p, number(0.1), momentum=0),
    "adam": lambda p, number: Adam(
        p, number(0.1), betas=(number(0.9), number(0.999)), weight_decay=number(0.1)
    ),
}


@pytest.mark.parametrize("number", [float, np.float64, np.float32])
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_float32_stays_float32(make, number):
    optimizer = make(parameters(np.float32), number)
    arrays = [*train(optimizer).values()]
    arrays += list(optimizer.state.values())
    assert {a.dtype for a in arrays} == {np.dtype(np.float32)}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_learning_rate_of_float64_changes_no_bit(make):
    def train_at(rate):
        optimizer = make(parameters(np.float32), float)
        optimizer.learning_rate = rate
        return train(optimizer)

    a, b = train_at(0.03), train_at(np.float64(0.03))
    assert all((a[name] == b[name]).all() for name in SHAPES)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_step_works_in_place_and_keeps_the_memory_layout(make):
    optimizer = make(parameters(), float)
    before = {name: p.data for name, p in optimizer.parameters.items()}
    trained = train(optimizer)
    assert all(trained[name] is before[name] for name in SHAPES)
    assert trained["weight"].flags.f_contiguous
    for slot in optimizer.slots:
        assert optimizer.state[f"{slot}/weight"].flags.f_contiguous


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_the_gradients_are_only_read(make):
    optimizer = make(parameters(), float)
    for name, p in optimizer.parameters.items():
        p.grad = gradient(name, 0)
        p.grad.flags.writeable = False
    optimizer.step()
    for name, p in optimizer.parameters.items():
        np.testing.assert_array_equal(p.grad, gradient(name, 0))


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_parameters_without_gradient_are_left_alone(make):
    optimizer = make(parameters(), float)
    train(optimizer, 1)
    state = optimizer.state_dict()
    before = optimizer.parameters["bias"].data.copy()
    for name, p in optimizer.parameters.items():
        p.grad = None if name == "bias" else gradient(name, 1)
    optimizer.step()
    np.testing.assert_array_equal(optimizer.parameters["bias"].data, before)
    for key, a in optimizer.state_dict().items():
        if key != "steps":
            assert np.array_equal(a, state[key]) == key.endswith("/bias")


# --- Saving and loading --------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_going_on_from_a_saved_state_is_bit_equal(make, dtype):
    through = make(parameters(dtype), float)
    expected = train(through)

    first = make(parameters(dtype), float)
    half = {name: a.copy() for name, a in train(first, 3).items()}
    state = first.state_dict()
    second = make({name: Tensor(a, requires_grad=True) for name, a in half.items()}, float)
    second.load_state_dict(state)
    train(first, 1, start=3)  # what was saved is a copy
    resumed = train(second, STEPS - 3, start=3)
    for name in SHAPES:
        np.testing.assert_array_equal(resumed[name], expected[name])
    assert second.steps == through.steps == STEPS
    for key, a in through.state_dict().items():
        np.testing.assert_array_equal(second.state_dict()[key], a)


def test_the_state_is_named_by_slot_and_parameter():
    def names(*kinds):
        return ["steps", *(f"{kind}/{name}" for kind in kinds for name in SHAPES)]

    assert list(Adam(parameters()).state_dict()) == names("updates", "mean", "square")
    assert list(SGD(parameters()).state_dict()) == names("updates", "momentum")
    plain = SGD(parameters(), momentum=0).state_dict()
    assert list(plain) == names("updates") and set(plain.values()) == {0}


def test_an_optimiser_refuses_what_it_would_train_wrongly():
    first, second = Tensor(np.ones(2), True), Tensor(np.ones(2), True)
    for wrong in ([], iter(()), {}, [("a", first), second], [np.ones(2)]):
        with pytest.raises(TypeError, match="takes a model, its parameters, or"):
            Adam(wrong)
    for twice in ([("a", first), ("a", second)], [("a", first), ("b", first)]):
        with pytest.raises(ValueError, match="the same name, or one parameter has two names"):
            Adam(twice)
    for rate in (-1, math.nan, math.inf):
        with pytest.raises(ValueError, match="learning rate must be nonnegative"):
            SGD([("a", first)], rate)
    for wrong in ({"weight_decay": -1}, {"betas": (0.9, 1.0)}, {"eps": 0}):
        with pytest.raises(ValueError, match="must"):
            Adam([("a", first)], **wrong)
    for momentum in (-0.1, 1, math.nan):
        with pytest.raises(ValueError, match="momentum must be"):
            SGD([("a", first)], momentum=momentum)
    for no_leaf in (np.ones(2), Tensor(np.ones(2)), first * 1):
        with pytest.raises(TypeError, match="a is not a tensor created with requires_grad"):
            Adam([("a", no_leaf)])
    with pytest.raises(ValueError, match="one parameter has two names"):
        Adam([first, first])
    with pytest.raises(ValueError, match="the array of a is read-only: create the tensor from a"):
        SGD([("a", Tensor((first * 1).data, requires_grad=True))])
    half = Tensor(np.ones(2, np.float16), requires_grad=True)
    with pytest.raises(ValueError, match="eps 1e-08 is 0 in float16, the dtype of b: try eps"):
        Adam([("a", first), ("b", half)])
    first.grad = np.ones(1)  # would broadcast silently
    with pytest.raises(ValueError, match=r"a is \(2,\), but its gradient is \(1,\)"):
        SGD([("a", first)]).step()


@pytest.mark.parametrize(
    "given",
    [
        lambda model: model,
        lambda model: model.parameters(),
        lambda model: (p for p in model.parameters()),
        lambda model: model.named_parameters(),
        lambda model: dict(model.named_parameters()),
    ],
    ids=["model", "list", "generator", "pairs", "dictionary"],
)
def test_an_optimizer_takes_a_model_or_its_parameters(given):
    model = Linear(3, 2, rng=0)
    before = model.weight.numpy().copy()
    optimizer = SGD(given(model), 0.5, momentum=0)
    for p in model.parameters():
        p.grad = np.ones_like(p.data)
    optimizer.step()
    assert np.allclose(model.weight.numpy(), before - 0.5)
    assert np.allclose(model.bias.numpy(), -0.5)


@pytest.mark.parametrize(
    ("wrong", "call"),
    [
        (lambda: Linear((3, 4), 0), "Linear(inputs: int, outputs: int, rng"),
        (lambda: Conv2d((1, 8), 5, 0), "Conv2d(inputs: int, outputs: int, kernel: int, rng"),
        (lambda: Conv2d(1, 8, kernel_size=5), "Conv2d(inputs: int, outputs: int, kernel: int, rng"),
        (lambda: DenseCaps((6, 10, 8, 16), 0), "DenseCaps(inputs: tuple[int, int], outputs"),
        (lambda: Adam([Tensor(np.ones(1), True)], lr=0.1), "Adam(parameters: object, learning_"),
    ],
    ids=["tuple", "tuples", "PyTorch", "four", "optimizer"],
)
def test_a_wrong_constructor_call_shows_the_right_one(wrong, call):
    with pytest.raises((TypeError, ValueError)) as caught:
        wrong()
    (note,) = caught.value.__notes__
    assert note.startswith(f"The signature is {call}"), note


def test_the_call_shown_is_that_of_the_innermost_layer():
    class Network(Module):
        def __init__(self):
            self.layer = Linear(3)

    with pytest.raises(TypeError) as caught:
        Network()
    assert caught.value.__notes__[0].startswith("The signature is Linear(")


def test_adam_in_half_precision_leaves_alone_what_has_gradient_zero():
    p = Tensor(np.ones(2, np.float16), requires_grad=True)
    p.grad = np.array([0, 1], np.float16)
    Adam([("p", p)], 0.25, eps=1e-4).step()
    np.testing.assert_allclose(p.data, [1, 0.75], rtol=1e-2)


def test_bias_correction_counts_the_updates_of_each_parameter():
    """Adam's first step is as long as the learning rate, even if it comes late."""
    early, late = Tensor(np.zeros(1), True), Tensor(np.zeros(1), True)
    adam = Adam([("early", early), ("late", late)], 0.1)
    for _ in range(10):
        early.grad = np.ones(1)
        adam.step()
    late.grad = np.ones(1)
    adam.step()
    np.testing.assert_allclose(late.data, -0.1, rtol=1e-6)


@pytest.mark.parametrize("limit", [math.inf, 1e39, 1e300])
def test_a_limit_beyond_float32_changes_nothing(limit):
    p = Tensor(np.ones(2, np.float32), True)
    p.grad = np.array([3, 4], np.float32)
    assert clip_gradient_norm([p], limit) == 5
    np.testing.assert_array_equal(p.grad, np.array([3, 4], np.float32))


def test_clipping_gradients_whose_squares_overflow():
    p = Tensor(np.ones(2, np.float32), True)
    p.grad = np.array([3e25, 4e25], np.float32)
    assert clip_gradient_norm([p], 1.0) == pytest.approx(5e25)
    np.testing.assert_allclose(p.grad, [0.6, 0.8], rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop("mean/bias"), "does not match: mean/bias"),
        (lambda s: s.pop("steps"), "does not match: steps"),
        (lambda s: s.update(more=s["mean/bias"]), "does not match: more"),
        (lambda s: s.update({"updates/bias": -1}), r"counts: \d+ steps, updates .*'bias': -1"),
        (
            lambda s: s.update({"square/bias": np.ones(5)}),
            r"square/bias is \(5,\) float64 in the state but \(4,\) float64 in this optimizer",
        ),
        (
            lambda s: s.update({"square/bias": np.ones(4, np.float32)}),
            r"square/bias is \(4,\) float32 in the state but \(4,\) float64 in this optimizer",
        ),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_nothing_changed(change, message):
    trained = Adam(parameters())
    train(trained)
    state = trained.state_dict()
    change(state)
    fresh = Adam(parameters())
    with pytest.raises(ValueError, match=message):
        fresh.load_state_dict(state)
    assert fresh.steps == 0
    assert not any(a.any() for a in fresh.state.values())


def test_the_state_of_another_optimiser_is_refused():
    with pytest.raises(ValueError, match=r"mean/bias, .*momentum/bias"):
        Adam(parameters()).load_state_dict(SGD(parameters()).state_dict())


# --- Steps and graphs ----------------------------------------------------------------------------


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_step_between_forward_and_backward_is_an_error(make):
    p = Tensor(np.ones(3), requires_grad=True)
    optimizer = make([("p", p)], float)
    loss = (p * p).sum()
    p.grad = np.ones(3)
    optimizer.step()
    with pytest.raises(RuntimeError, match="replaced between the forward and the backward"):
        loss.backward()


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_steps_after_backward_are_no_error(make):
    p = Tensor(np.full(3, 5.0), requires_grad=True)
    optimizer = make([("p", p)], float)
    losses = []
    for _ in range(5):
        p.grad = None
        loss = (p * p).sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


# --- Clipping ------------------------------------------------------------------------------------


def with_gradients(*gradients):
    tensors = [Tensor(np.zeros(g.shape, g.dtype), requires_grad=True) for g in gradients]
    for t, g in zip(tensors, gradients, strict=True):
        t.grad = g
    return tensors


def test_clipping_shortens_all_gradients_together():
    tensors = with_gradients(np.array([3.0, 0.0]), np.array([[4.0], [12.0]]))
    norm = clip_gradient_norm(tensors, 2.6)
    assert norm.shape == () and norm == pytest.approx(13)
    np.testing.assert_allclose(tensors[0].grad, [0.6, 0])
    np.testing.assert_allclose(tensors[1].grad, [[0.8], [2.4]])


@pytest.mark.parametrize("limit", [13.01, 1e12])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gradients_within_the_limit_do_not_change_a_bit(limit, dtype):
    gradients = np.array([3, 1e-7], dtype), np.array([[4], [12]], dtype)
    tensors = with_gradients(*(g.copy() for g in gradients))
    assert clip_gradient_norm(tensors, limit) == pytest.approx(13)
    for t, g in zip(tensors, gradients, strict=True):
        np.testing.assert_array_equal(t.grad, g)


@pytest.mark.parametrize("limit", [1e-6, 1, 1e12])
def test_clipping_zero_gradients_gives_zero(limit):
    tensors = with_gradients(np.zeros(3, np.float32))
    with np.errstate(all="raise"):
        assert clip_gradient_norm(tensors, limit) == 0
    np.testing.assert_array_equal(tensors[0].grad, 0)


def test_clipping_without_gradients_does_nothing():
    tensors = [Tensor(np.ones(3), requires_grad=True)]
    assert clip_gradient_norm(tensors, 1) == 0
    assert tensors[0].grad is None


def test_clipping_gradients_in_any_memory_layout():
    whole = draw((4, 6), 0)
    layouts = [whole.T.copy().T, np.repeat(whole, 2, axis=1)[:, ::2], whole[::-1].copy()[::-1]]
    tensors = with_gradients(*layouts)
    norm = np.linalg.norm(whole) * math.sqrt(3)
    assert clip_gradient_norm(tensors, 0.5) == pytest.approx(norm)
    for t in tensors:
        np.testing.assert_allclose(t.grad, whole * 0.5 / norm, rtol=1e-12)


@pytest.mark.parametrize("limit", [1, 1.0, np.float64(1), np.float32(1)])
def test_clipping_keeps_float32(limit):
    tensors = with_gradients(np.full(9, 2, np.float32), np.array(2, np.float32))
    clip_gradient_norm(tensors, limit)
    assert {t.grad.dtype for t in tensors} == {np.dtype(np.float32)}
    assert sum((t.grad**2).sum() for t in tensors) == pytest.approx(1, rel=1e-6)


@pytest.mark.parametrize("limit", [0, -1, math.nan])
def test_a_senseless_limit_is_refused(limit):
    with pytest.raises(ValueError, match=f"must be positive, not {limit}"):
        clip_gradient_norm(with_gradients(np.ones(3)), limit)


# --- Schedules -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("constant", {0: 1, 2.5: 1, 10: 1}),
        ("exponential", {0: 1, 1: 0.9, 2.5: 0.9**2.5, 10: 0.9**10}),
        ("cosine", {0: 1, 2.5: 0.5 + 0.5 * math.sqrt(0.5), 5: 0.5, 10: 0}),
    ],
)
def test_schedules(name, expected):
    for epoch, factor in expected.items():
        assert SCHEDULES[name](epoch, 10, 0.9) == pytest.approx(factor, abs=1e-15)


def test_there_is_no_other_schedule():
    assert list(SCHEDULES) == ["constant", "exponential", "cosine"]


def test_clipping_takes_a_generator():
    p = Tensor(np.zeros(2), requires_grad=True)
    p.grad = np.array([3.0, 4.0])
    assert clip_gradient_norm((q for q in [p]), 1.0) == pytest.approx(5)
    np.testing.assert_allclose(p.grad, [0.6, 0.8])
