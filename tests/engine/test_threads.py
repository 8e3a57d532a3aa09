"""Threads share the work, do not change any results, and are used only if they pay off."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from minicaps import no_grad, threads
from minicaps.cli.blas import one_blas_thread
from minicaps.graph import is_recording


@pytest.fixture(params=[1, 2, 3])
def cores(request, monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: request.param)
    return request.param


@pytest.fixture
def shared(monkeypatch):
    """Share products of any size among threads, as after `one_blas_thread`."""
    monkeypatch.setattr(threads, "LEAST", 0)
    monkeypatch.setattr(threads, "share_products", True)


def test_results_come_in_order(cores):
    assert list(threads.in_threads(lambda n: n * n, range(20))) == [n * n for n in range(20)]


def test_threads_work_at_the_same_time(monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: 2)
    meeting = threading.Barrier(2, timeout=300)  # breaks unless both arrive
    assert list(threads.in_threads(lambda n: meeting.wait() in (0, 1), range(2))) == [True, True]


def test_a_thread_does_its_own_threads_work(monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: 2)

    def outer(_):
        here = threading.get_ident()
        return [
            here == there for there in threads.in_threads(lambda _: threading.get_ident(), "ab")
        ]

    assert list(threads.in_threads(outer, range(8))) == [[True, True]] * 8


def test_a_thread_sees_the_context(cores):
    with no_grad(), np.errstate(over="raise"):
        seen = list(threads.in_threads(lambda _: (is_recording.get(), np.geterr()["over"]), "ab"))
    assert seen == [(False, "raise")] * 2


def test_an_error_reaches_the_caller_and_the_threads_live_on(cores):
    def fail(n):
        raise ZeroDivisionError(f"mine, {n}")

    with pytest.raises(ZeroDivisionError, match="mine, 0"):
        list(threads.in_threads(fail, range(100)))
    assert list(threads.in_threads(str, range(3))) == ["0", "1", "2"]


def test_after_an_error_nobody_goes_on_writing(monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: 2)
    both, wrote = threading.Barrier(2, timeout=300), []

    def work(n):
        both.wait()
        if n == 0:
            raise ZeroDivisionError
        time.sleep(0.2)
        wrote.append(n)

    with pytest.raises(ZeroDivisionError):
        list(threads.in_threads(work, range(2)))
    assert wrote == [1]  # it has ended


def test_results_do_not_pile_up_before_a_slow_caller(monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: 2)
    started, taken = [], 0
    for _ in threads.in_threads(started.append, range(40)):
        time.sleep(0.01)  # enough time to run ahead if that is allowed
        assert len(started) <= taken + 2 * threads.AHEAD
        taken += 1
    assert taken == len(started) == 40


def test_ctrl_c_leaves_nobody_writing(monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: 2)
    both, wrote = threading.Barrier(3, timeout=30), []

    def work(n):
        both.wait()
        time.sleep(0.2)
        wrote.append(n)

    def press():
        both.wait()  # both threads work
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press).start()
    with pytest.raises(KeyboardInterrupt):
        list(threads.in_threads(work, range(2)))
        time.sleep(9)
    assert sorted(wrote) == [0, 1]  # they have ended


def test_a_caller_that_stops_early_leaves_nobody_writing(monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: 2)
    wrote = []

    def work(n):
        time.sleep(0.05)
        wrote.append(n)

    for _ in threads.in_threads(work, range(9)):
        break
    number = len(wrote)
    time.sleep(0.2)
    assert len(wrote) == number < 9


LATE = """
import threading, time
from minicaps import threads
from minicaps.cli.blas import one_blas_thread
threads.cores = lambda: 2
list(threads.in_threads(str, range(4)))

def late():
    threading.main_thread().join()
    print(list(threads.in_threads(str, range(4))))

threading.Thread(target=late).start()
"""


def test_a_thread_that_outlives_the_main_thread_works_on():
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True)
    assert done.stdout.strip() == "['0', '1', '2', '3']", done.stderr


@pytest.mark.parametrize("most", [None, 1, 2, 7])
@pytest.mark.parametrize("n", [0, 1, 2, 5, 12])
def test_parts_are_a_partition(cores, n, most):
    cut = threads.parts(n, most)
    assert [k for part in cut for k in range(n)[part]] == list(range(n))
    longest = min(most or n, -(-n // cores))
    assert all(0 < part.stop - part.start <= longest for part in cut)


@pytest.mark.parametrize("shape", [(0, 3), (1, 5), (7,), (9, 2, 3), (100, 40)])
def test_every_part_is_visited_once(cores, monkeypatch, shape):
    monkeypatch.setattr(threads, "LEAST", 0)
    monkeypatch.setattr(threads, "CACHE", 64)
    visits = np.zeros(shape, int)

    def visit(part):
        visits[part] += 1

    if visits.size:
        threads.over_parts(visit, visits)
    assert (visits == 1).all()


def test_a_small_array_is_one_part():
    asked = []
    threads.over_parts(asked.append, np.ones(()))
    threads.over_parts(asked.append, np.ones((0, 4)))
    assert asked == [..., ...]


SHAPES = [
    ((3, 4), (4, 5)),
    ((9, 4), (4, 2)),
    ((2, 1), (1, 2)),
    ((8, 3, 4), (8, 4, 5)),
    ((9, 2, 3), (9, 3, 1)),
    ((2, 3, 4), (2, 4, 9)),
    ((3, 4), (6, 4, 5)),
    ((6, 3, 4), (4, 5)),
    ((1, 3, 4), (8, 4, 5)),
    ((2, 9, 3, 4), (9, 4, 2)),
    ((0, 3, 4), (0, 4, 5)),
    ((5, 0), (0, 4)),
    ((0, 4), (4, 3)),
]


@pytest.mark.parametrize("dtypes", [("d", "d"), ("f", "f"), ("f", "d"), ("i", "i")])
@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_a_shared_product_is_the_product(cores, shared, a, b, dtypes):
    rng = np.random.default_rng(0)
    a, b = ((9 * rng.random(s)).astype(t) for s, t in zip((a, b), dtypes, strict=True))
    expected = a @ b
    found = threads.matmul(a, b)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    out = np.full_like(expected, 7)
    assert threads.matmul(a, b, out=out) is out
    np.testing.assert_allclose(out, expected, rtol=1e-6)


def test_a_shared_product_takes_any_layout(cores, shared):
    rng = np.random.default_rng(0)
    a, b = rng.random((4, 9, 8)).transpose(1, 2, 0), rng.random((9, 10, 4)).transpose(0, 2, 1)
    out = np.empty((10, 9, 8)).transpose(1, 2, 0)
    threads.matmul(a[..., ::2], b[:, ::2], out=out)
    np.testing.assert_allclose(out, a[..., ::2] @ b[:, ::2], rtol=1e-12)


def test_shapes_that_do_not_fit_are_refused(shared):
    with pytest.raises(ValueError):
        threads.matmul(np.ones((3, 4)), np.ones((5, 3)))


COUNT = """
from threadpoolctl import threadpool_info
import minicaps
from minicaps.cli.blas import one_blas_thread
def count():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}
print(count())
with one_blas_thread():
    print(count())
print(count())
"""


def test_a_command_limits_blas_and_an_import_does_not():
    environment = {"OPENBLAS_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", COUNT], env=environment, capture_output=True, text=True, check=True
    )
    before, inside, after = done.stdout.split("\n")[:3]
    assert before == after == str({min(2, threads.cores())}) and inside == "{1}"


def test_blocks_with_one_blas_thread_may_overlap_in_threads():
    """The limit lasts until the last block ends, and not longer."""
    ready, leave = threading.Event(), threading.Event()

    def hold():
        with one_blas_thread():
            ready.set()
            leave.wait(60)
            seen.append(threads.share_products)

    seen = []
    before = blas_threads()
    other = threading.Thread(target=hold)
    with one_blas_thread():
        other.start()
        assert ready.wait(60)
        with one_blas_thread():
            assert blas_threads() == {1}
    assert (blas_threads(), threads.share_products) == ({1}, True)
    leave.set()
    other.join()
    assert seen == [True]
    assert (blas_threads(), threads.share_products) == (before, False)


def blas_threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}
