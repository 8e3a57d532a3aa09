"""Ranks: a single one without mpiexec, and what they share."""

import itertools

import numpy as np
import pytest
from rank_cases import BASE, dataset

from minicaps import nn, ops, ranks
from minicaps.backend import choose_device, to_host
from minicaps.models.flat_gradients import FlatGradients
from minicaps.tensor import Tensor
from minicaps.threads import all_cores, cores
from minicaps.train.options import complete
from minicaps.train.progress import Display
from minicaps.train.trainer import Trainer


@pytest.fixture
def three_ranks(monkeypatch):
    """Count as rank 1 of three that see the same numbers, and share a machine."""

    class Communicator:
        rank, size = 1, 3

        def Allreduce(self, _, array):
            array *= 3

        def allgather(self, value):
            return [value] * 3

    class MPI:
        IN_PLACE = None

    world = ranks._World(MPI, Communicator(), None, (1, 3, 3))
    monkeypatch.setattr(ranks, "_started", lambda: world)


def test_without_mpiexec_there_is_one_rank():
    array = np.arange(3.0)
    assert (ranks.rank(), ranks.count(), ranks.is_root(), ranks.local()) == (0, 1, True, (0, 1, 1))
    assert ranks.total(array) is array
    assert [ranks.agree(flag) for flag in (True, False)] == [True, False]
    assert ranks.gather("own") == ["own"]
    assert ranks.share_of(8) is None and ranks.share() is None
    assert ranks.by_root(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        ranks.by_root(divmod, 7, 0)
    assert cores() == all_cores()
    with ranks.pool() as pool:
        assert pool is None


@pytest.mark.parametrize("size", [1, 2, 3, 4, 64])
@pytest.mark.parametrize("count", [2, 3, 7])
def test_shares_cover_a_batch(monkeypatch, size, count):
    shares = []
    for rank in range(count):
        world = type("World", (), {"rank": rank, "size": count})
        monkeypatch.setattr(ranks, "_world", lambda world=world: world)
        shares.append(ranks.share_of(size))
    rows = np.concatenate([np.arange(size)[s.rows][: s.counted] for s in shares])
    assert rows.tolist() == [*range(size)]
    assert sum(s.weight for s in shares) == pytest.approx(1)
    assert all(len(np.arange(size)[s.rows]) >= 1 for s in shares)
    assert max(s.counted for s in shares) - min(s.counted for s in shares) <= 1


def test_a_rank_that_counts_alone_is_one(three_ranks):
    assert (ranks.rank(), ranks.count(), ranks.total(np.ones(2)).tolist()) == (1, 3, [3, 3])
    with ranks.alone():
        assert (ranks.rank(), ranks.count(), ranks.total(np.ones(2)).tolist()) == (0, 1, [1, 1])
        assert cores() == max(1, all_cores() // 3)  # the machine is shared all the same
    assert ranks.count() == 3


def test_sums_of_device_arrays_pass_through_host_memory(three_ranks, strict_cupy):
    x = Tensor(choose_device("gpu").put(np.ones(4)), requires_grad=True)
    y = ops.total(x)
    assert y.numpy().tolist() == [3] * 4
    (y * y).sum().backward()
    assert x.grad.get().tolist() == [18] * 4


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_one_sum_adds_up_all_gradients(three_ranks, strict_cupy, kind):
    """Each gradient keeps the memory layout of its parameter, such as channels last."""
    device = choose_device(kind)
    layers = [nn.Conv2d(2, 3, 4, 0).to(device), nn.Linear(5, 2, 0).to(device)]
    parameters = [p for layer in layers for p in layer.parameters()]
    together = FlatGradients(parameters, 2)
    for times in (1, 2):  # the buffer is reused
        for k, p in enumerate(parameters[:-1]):
            p.grad = device.put(np.full(p.shape, times * (k + 1), np.float32))
        assert together.add_up(device.xp.asarray(True), 0.5) == [3, 1.5]
        for k, p in enumerate(parameters[:-1]):
            assert (to_host(p.grad) == 3 * times * (k + 1)).all()
            assert p.grad.strides == p.data.strides
        assert parameters[-1].grad is None


def test_the_ranks_of_a_machine_take_turns_in_its_gpus(three_ranks, strict_cupy, monkeypatch):
    chosen, runtime = [], strict_cupy.cuda.runtime
    monkeypatch.setattr(runtime, "setDevice", chosen.append)
    for gpus in (1, 2):
        monkeypatch.setattr(runtime, "getDeviceCount", lambda gpus=gpus: gpus)
        choose_device("gpu")
    assert chosen == [0, 1]


def test_a_training_step_is_the_same_on_the_gpu_of_a_rank(three_ranks, strict_cupy, tmp_path, tiny):
    """Its share of a batch passes through the decoder, batch norm and the sums over the ranks."""
    capsnet = {"model": "capsnet", "shift": 1, "clip": 1.0}
    for options in (capsnet, {"model": "pooling-cnn", "batch_norm": True}):
        states = {}
        for kind in ("cpu", "gpu"):
            made = complete(BASE | options | {"device": kind})
            device, display = choose_device(kind), Display("tests", quiet=True)
            trainer = Trainer(made, dataset("", {}), device, tmp_path, display, stop=False)
            for batch in itertools.islice(trainer.rest_of_epoch(), 2):
                assert (len(batch[0]), len(batch[1])) == (3, 8)  # images of rank 1, all labels
                trainer._step(*batch)
            states[kind] = trainer.model.state_dict()
            assert trainer.learner.optimizer.steps == 2
        for name, array in states["cpu"].items():
            np.testing.assert_allclose(states["gpu"][name], array, rtol=0, atol=1e-10)


def test_a_layer_draws_the_numbers_of_the_whole_batch():
    x = np.ones((6, 5), np.float32)
    whole, part = nn.Dropout(0.5), nn.Dropout(0.5)
    expected = whole(Tensor(x)).numpy()
    with ranks.sharing(ranks.Share(slice(2, 4), 6, 2)):
        assert np.array_equal(part(Tensor(x[2:4])).numpy(), expected[2:4])


def test_a_child_process_is_no_rank():
    launched = {"PMI_SIZE": "2", "PMIX_RANK": "1", "MPI_LOCALNRANKS": "2", "PATH": "/bin"}
    assert ranks.without_launcher(launched) == {"PATH": "/bin"}
