"""Modules: their parameters and the names of these, copies, states and conversions."""

import copy

import numpy as np
import pytest
from layer_checks import a_small_capsnet, pictures

from minicaps import Tensor
from minicaps.backend import choose_device
from minicaps.nn import BatchNorm2d, Dropout, Linear, Module
from minicaps.nn.layers import parameter

# --- Module --------------------------------------------------------------------------------------


class Leaf(Module):
    def __init__(self, value, shape=(2,)):
        self.weight = parameter(np.full(shape, value, np.float32))

    def forward(self, x):
        self.seen = x * self.weight  # results that a module stores are not parameters
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
    assert other.parameters() == before  # the same tensors, so an optimizer remains valid
    for p, q in zip(tree.parameters(), other.parameters(), strict=True):
        np.testing.assert_array_equal(p.data, q.data)
    state["bias"][:] = 100
    assert other.bias.data[0] == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop("bias"), "^the state is missing bias$"),
        (lambda s: (s.pop("bias"), s.pop("scale")), "^the state is missing bias, scale$"),
        (lambda s: s.update(more=s["bias"]), "^the state has more, which this model lacks$"),
        (
            lambda s: s.update(bias=s["bias"][:1]),
            r"^bias is \(1,\) float32 in the state but \(2,\) float32 in this model$",
        ),
        (
            lambda s: s.update(bias=s["bias"].astype(float)),
            r"^bias is \(2,\) float64 in the state but \(2,\) float32 in this model$",
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


def layouts(model):
    """Return the axes longer than 1 of every parameter in memory order, slowest first."""
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


# --- Buffers and draws ---------------------------------------------------------------------------


class Counter(Module):
    """A module that counts its calls in its state."""

    buffers = ("calls",)

    def __init__(self):
        self.calls = np.zeros(2, np.float32)
        self.weight = parameter(np.ones(2, np.float32))

    def forward(self, x):
        self.calls = self.calls + 1
        return x * self.weight


class Counters(Module):
    def __init__(self):
        self.own = Counter()
        self.more = [Counter(), [Counter()]]
        self.again = self.own

    def forward(self, x):
        return self.again(self.more[1][0](self.more[0](self.own(x))))


BUFFERS = ["own.calls", "more.0.calls", "more.1.0.calls", "again.calls"]


def counted():
    model = Counters()
    model(Tensor(np.ones(2, np.float32)))
    return model


def test_buffers_are_in_the_state_and_not_learned():
    model = counted()
    weights = [name.replace("calls", "weight") for name in BUFFERS[:3]]
    state = model.state_dict()
    assert list(state) == weights + BUFFERS
    assert [state[name].tolist() for name in BUFFERS] == [[2, 2], [1, 1], [1, 1], [2, 2]]
    assert [name for name, _ in model.named_parameters()] == weights
    assert model.number_of_parameters() == 6
    state["own.calls"][:] = 100
    assert model.own.calls[0] == 2


def test_buffers_are_loaded_converted_and_moved(strict_cupy):
    state = counted().state_dict()
    model = Counters()
    model.load_state_dict(state)
    state["own.calls"][:] = 100
    assert model.own.calls.tolist() == [2, 2] and model.more[1][0].calls.tolist() == [1, 1]
    assert model.astype(np.float64).own.calls.dtype == np.float64
    model.to(choose_device("gpu"))
    assert isinstance(model.own.calls, strict_cupy.ndarray)
    assert all(isinstance(a, np.ndarray) for a in model.state_dict().values())
    model.to(choose_device("cpu"))
    assert model.own.calls.tolist() == [2, 2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop("own.calls"), "^the state is missing own.calls$"),
        (
            lambda s: s.update({"more.0.calls": np.zeros(3, np.float32)}),
            r"^more.0.calls is \(3,\) float32 in the state but \(2,\) float32 in this model$",
        ),
    ],
)
def test_a_state_whose_buffers_do_not_fit_is_refused_and_nothing_changed(change, message):
    model, state = Counters(), counted().state_dict()
    change(state)
    with pytest.raises(ValueError, match=message):
        model.load_state_dict(state)
    assert not any(model.state_dict()[name].any() for name in BUFFERS)


def test_a_copied_model_has_its_own_buffers():
    model = counted()
    clone = copy.deepcopy(model)
    clone(Tensor(np.ones(2, np.float32)))
    assert clone.own.calls.tolist() == [4, 4] and model.own.calls.tolist() == [2, 2]


def test_modules_are_walked_in_order_of_creation():
    model = Counters()
    names, modules = zip(*model.modules(), strict=True)
    assert names == ("", "own.", "more.0.", "more.1.0.", "again.")
    assert modules == (model, model.own, model.more[0], model.more[1][0], model.own)


class Drops(Module):
    def __init__(self):
        self.norm = BatchNorm2d(1)
        self.drops = [Dropout(0.5), Dropout(0.5)]

    def forward(self, x):
        return [drop(x).data for drop in self.drops]


def test_reseed_makes_draws_repeat_and_every_layer_draws_its_own():
    model, x = Drops(), Tensor(np.ones(100))
    model.reseed(1, 2, 3)
    first, second = model(x)
    later = model(x)
    assert (first != second).any()
    assert (later[0] != first).any() and (later[1] != second).any()
    model.reseed(1, 2, 3)
    np.testing.assert_array_equal(model(x), [first, second])
    np.testing.assert_array_equal(model(x), later)
    fresh = Drops()
    fresh.reseed(1, 2, 3)
    np.testing.assert_array_equal(fresh(x), [first, second])
    for other in [(1, 2, 4), (1, 3, 3), (2, 2, 3)]:
        model.reseed(*other)
        assert (model(x)[0] != first).any()


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
