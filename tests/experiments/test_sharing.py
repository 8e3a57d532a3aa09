"""Several processes, with or without MPI, work on one results folder."""

import os
import random
import signal
import time

import pytest
from mpi import needs_mpi, ranks_of
from shared_experiments import begin, begun, experiment, figures
from tiny_runs import assert_equal_runs, finish

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cannot choose cores"),
]
NETWORKS = {
    "pairs": ["one-seed-0", "one-seed-1", "two-seed-0", "two-seed-1"],
    "viewpoint": [
        f"{part}-seed-{seed}" for part in ("CNN", "CapsNet", "matrix-capsules") for seed in (0, 1)
    ],
}


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """Return a function that runs a command in a single process; returns its folder."""
    folders = {}

    def run(*arguments, cores=None):
        if (arguments, cores) not in folders:
            folder = folders[arguments, cores] = tmp_path_factory.mktemp("straight")
            assert finish(begin(folder, arguments, cores=cores))[0] == 0
        return folders[arguments, cores]

    return run


def threads(ranks):
    """Return the number of threads of each rank."""
    return max(1, len(os.sched_getaffinity(0)) // ranks)


def until_begun(folder, count, processes):
    """Wait until a number of trainings have begun."""
    end = time.monotonic() + 300
    while len(begun(folder)) < count:
        assert time.monotonic() < end and any(p.poll() is None for p in processes)
        time.sleep(0.05)


def names(folder):
    return sorted(name for name, *_ in begun(folder))


def left_behind(folder):
    return [path for path in folder.rglob("*") if path.suffix in (".lock", ".part")]


@pytest.mark.parametrize("name", NETWORKS)
def test_two_processes_train_each_network_once(tmp_path, straight, name):
    both = [begin(tmp_path, experiment(name), slow=0.05) for _ in range(2)]
    for process in both:
        code, out, _ = finish(process)
        assert code == 0 and f"{name}.json and .png" in out
    assert names(tmp_path) == NETWORKS[name]
    assert figures(tmp_path, name) == figures(straight(*experiment(name)), name)
    assert not left_behind(tmp_path)


def test_what_a_killed_process_leaves_is_finished_by_the_other(tmp_path, straight):
    killed, other = both = [begin(tmp_path, experiment(), slow=0.2) for _ in range(2)]
    until_begun(tmp_path, 2, both)
    time.sleep(random.uniform(0, 2))
    killed.kill()
    assert killed.wait() == -signal.SIGKILL
    code, out, _ = finish(other)
    assert code == 0 and "pairs.json and .png" in out
    assert figures(tmp_path) == figures(straight(*experiment()))
    assert not left_behind(tmp_path)
    assert len(begun(tmp_path)) in (4, 5)  # one of them twice, if it was killed in training
    killed.communicate()


@pytest.mark.parametrize(("ranks", "name"), [(2, "pairs"), (3, "pairs"), (3, "viewpoint")])
@needs_mpi
def test_ranks_share_the_networks(tmp_path, straight, ranks, name):
    code, out, _ = finish(begin(tmp_path, experiment(name), ranks, slow=0.05))
    assert code == 0
    assert names(tmp_path) == NETWORKS[name]
    alone = straight(*experiment(name), cores=threads(ranks))
    assert figures(tmp_path, name) == figures(alone, name)
    for network in NETWORKS[name]:
        place = f"runs/experiments/{name}-quick/{network}"
        assert_equal_runs(tmp_path / place, alone / place)
        assert f"[{network}] epoch 1/" in out
    assert out.count("Wrote runs") == 1
    before = out.partition("\n%")[0] if name == "pairs" else out.partition("\ntest error")[0]
    assert all(line.startswith("[") for line in before.splitlines()[1:] if line)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@needs_mpi
def test_stopped_ranks_save_and_go_on(tmp_path, straight, number):
    process = begin(tmp_path, experiment(), ranks=2, slow=0.2)
    until_begun(tmp_path, 2, [process])
    time.sleep(0.5)
    process.send_signal(number)
    code, _, err = finish(process)
    assert code == 128 + number
    told = "stopped; finished work is kept. Resume with:\n  mpiexec -n 2 python -m minicaps."
    assert err.count(told) == 1
    assert finish(begin(tmp_path, experiment(), ranks=3))[0] == 0
    assert len(begun(tmp_path)) == 6  # two of the networks were resumed
    assert figures(tmp_path) == figures(straight(*experiment(), cores=1))


@needs_mpi
def test_after_a_rank_was_killed_a_plain_process_finishes(tmp_path, straight):
    process = begin(tmp_path, experiment(), ranks=2, slow=0.2)
    until_begun(tmp_path, 2, [process])
    time.sleep(random.uniform(0, 2))
    os.kill(ranks_of(process)[1], signal.SIGKILL)
    assert process.wait() != 0
    process.communicate()
    assert finish(begin(tmp_path, experiment(), cores=1))[0] == 0
    assert figures(tmp_path) == figures(straight(*experiment(), cores=1))
    assert not left_behind(tmp_path)
