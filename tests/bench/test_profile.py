"""A profile counts the time of each op once, and watches nothing when it is off."""

import json
import types

import numpy as np
import pytest

from minicaps import Tensor, no_grad
from minicaps.bench import __main__ as bench
from minicaps.bench import profile as bench_profile
from minicaps.graph import observer
from minicaps.tensor import REGISTRY, op
from minicaps.threads import in_threads


@pytest.fixture
def clock(monkeypatch):
    """A clock that the ops of a test advance."""
    clock = types.SimpleNamespace(now=0.0)
    time = types.SimpleNamespace(perf_counter=lambda: clock.now / 1000)
    monkeypatch.setattr(bench_profile, "time", time)

    def go(milliseconds):
        clock.now += milliseconds

    return go


def slow_ops(go):
    """An op that takes 3 ms forward and 5 ms backward, and one that calls it twice."""

    @op
    def slow(x):
        go(3)

        def pullback(g):
            go(5)
            return 2 * g

        return 2 * x, pullback

    @op
    def twice(x):
        go(1)
        with no_grad():
            once, again = in_threads(lambda n: slow(Tensor(x)), range(2))
        return once.data + again.data, lambda g: 4 * g

    del REGISTRY["slow"], REGISTRY["twice"]
    return slow, twice


def test_the_times_of_ops_are_told_apart_and_add_up(clock):
    slow, _ = slow_ops(clock)

    def step():
        clock(2)
        x = Tensor(np.ones(3), requires_grad=True)
        (slow(slow(x)) + 1).sum().backward()

    found = bench_profile.profile(step, 4)
    rows = {row["op"]: row for row in found["ops"]}
    assert next(iter(rows)) == "slow"  # longest first
    assert rows.keys() == {"slow", "add", "sum"}
    row = rows["slow"]
    assert (row["calls"], row["inside"]) == (2, [])
    assert (row["forward"], row["backward"]) == pytest.approx((6, 10))
    assert row["milliseconds"] == pytest.approx(16) and row["share"] == pytest.approx(16 / 18)
    assert found["milliseconds"] == pytest.approx(18) and found["rest"] == pytest.approx(2)
    assert observer.get() is None


def test_what_runs_inside_an_op_is_not_counted_twice(clock, capsys):
    _, twice = slow_ops(clock)
    found = bench_profile.profile(lambda: twice(Tensor(np.ones(3))), 2)
    outer, inner = found["ops"]
    assert (outer["op"], outer["calls"], outer["inside"]) == ("twice", 1, [])
    assert (inner["op"], inner["calls"], inner["inside"]) == ("slow", 2, ["twice"])
    assert outer["milliseconds"] == pytest.approx(7) == found["milliseconds"]
    assert found["rest"] == pytest.approx(0, abs=1e-9)
    bench_profile.print_profile(found)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["twice", "1", "7.00", "7.00", "100.0%"]
    assert lines[2].startswith("    slow") and "%" not in lines[2]


def test_after_an_error_nothing_is_watched():
    def step():
        if observer.get():
            raise RuntimeError("in the step")

    with pytest.raises(RuntimeError, match="in the step"):
        bench_profile.profile(step, 1)
    assert observer.get() is None


def test_the_profile_of_the_network_has_its_ops(tmp_path, capsys):
    file = tmp_path / "profile.json"
    options = ["--profile", "--preset", "small", "--batch", "2", "--repeats", "2"]
    assert bench.main([*options, "--json", str(file)]) == 0
    train, infer = json.loads(file.read_text())["profiles"]
    assert (train["kind"], infer["kind"], train["batch"]) == ("train", "infer", 2)
    for found in (train, infer):
        outer = [row for row in found["ops"] if not row["inside"]]
        accounted = sum(row["milliseconds"] for row in outer)
        assert accounted + found["rest"] == pytest.approx(found["milliseconds"])
        assert 0 < found["rest"] < found["milliseconds"]
        for row in found["ops"]:
            parts = row["forward"] + row["backward"] + row["update"]
            assert row["milliseconds"] == pytest.approx(parts)
        rows = {row["op"]: row for row in outer}
        assert rows["conv2d"]["calls"] == 3
        assert {row["inside"][0] for row in found["ops"] if row["inside"]} == {"_route_in_blocks"}
    trained = {row["op"]: row for row in train["ops"]}
    assert trained["Adam"]["calls"] == 1 and trained["Adam"]["update"] > 0
    assert trained["conv2d"]["backward"] > 0 and trained["_agreement"]["backward"] > 0
    assert "Adam" not in {row["op"] for row in infer["ops"]}
    assert all(row["backward"] == 0 for row in infer["ops"])
    printed = capsys.readouterr().out
    assert "Adam" in printed and "the rest" in printed and "    _agreement" in printed
