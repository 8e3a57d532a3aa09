"""Test benchmarks of routing and layers: tables show the measurements, and twins agree."""

import json
import statistics
import types

import numpy as np
import pytest

from minicaps.bench import __main__ as bench
from minicaps.bench import routing as bench_routing
from minicaps.bench import tasks as bench_tasks
from minicaps.bench import timing as bench_timing

TITLES = ["base", "2 × batch", "2 × children", "2 × parents", "2 × iterations"]


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    """Make the table and the contests small enough to run quickly."""
    monkeypatch.setattr(bench_routing, "BASE", {"children": 6, "parents": 3, "iterations": 2})
    monkeypatch.setattr(bench_routing, "LAYERS", ((8, 2, 3, 2), (4, 3, 2, 1)))
    monkeypatch.setattr(bench_routing, "DIGITCAPS", (9, 4, 3))
    monkeypatch.setattr(bench_timing, "PAUSE", 0)


# ---- growing sizes


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
def test_the_table_has_every_routing_at_every_size(tmp_path, capsys):
    file = tmp_path / "bench.json"
    options = ["--what", "routing", "--batch", "2", "3", "--repeats", "3", "--json", str(file)]
    assert bench.main(options) == 0
    reports = json.loads(file.read_text())["routings"]
    assert [report["batch"] for report in reports] == [2, 3]
    for report in reports:
        table = report["table"]
        cells = [(row["routing"], row["size"]) for row in table]
        assert cells == [(name, size) for name in bench_routing.ROUTINGS for size in TITLES]
        for first in range(0, len(table), 5):
            base = table[first]
            for row in table[first : first + 5]:
                assert len(row["milliseconds"]) == 3
                assert row["median"] == statistics.median(row["milliseconds"])
                assert row["time_ratio"] == pytest.approx(row["median"] / base["median"])
                assert row["memory_ratio"] == pytest.approx(row["mebibytes"] / base["mebibytes"])
    printed = capsys.readouterr().out
    for name in (*bench_routing.ROUTINGS, *TITLES):
        assert name in printed
    assert max(map(len, printed.splitlines())) <= 100


def test_the_table_says_what_was_measured(tmp_path, capsys, monkeypatch):
    """Test with a routing that takes B·I·J·r milliseconds and B·I·J·r KiB."""
    now = 0.0

    def slow(votes, *, iterations):
        nonlocal now
        b, i, j, _ = votes.shape
        size = b * i * j * iterations
        now += size / 1000
        room = np.zeros((size, 1024), np.uint8)
        return [(votes * int(room[0, 0])).sum(axis=1)]

    clock = types.SimpleNamespace(perf_counter=lambda: now)
    monkeypatch.setattr(bench_timing, "time", clock)
    monkeypatch.setattr(bench_routing, "ROUTINGS", {"slow": slow})
    file = tmp_path / "bench.json"
    assert bench.main(["--what", "routing", "--batch", "1", "--json", str(file)]) == 0
    base, *twice = json.loads(file.read_text())["routings"][0]["table"]
    assert base["median"] == pytest.approx(36) and base["time_ratio"] == 1
    assert 36 <= 1024 * base["mebibytes"] < 48  # including its temporaries
    assert [row["size"] for row in twice] == TITLES[1:]
    for row in twice:
        assert row["median"] == pytest.approx(72) and row["time_ratio"] == pytest.approx(2)
        assert 72 <= 1024 * row["mebibytes"] < 84
    times = next(line for line in capsys.readouterr().out.splitlines() if "slow" in line)
    assert times.split() == ["slow", "ms", "36.0", *["72.0", "(2.00)"] * 4]


@pytest.mark.parametrize("name", ["distance", "em"])
def test_a_size_means_what_it_says(name):
    for title, numbers in bench_routing.sizes(2).items():
        task = bench_routing.growth_task(name, **numbers)
        assert title in TITLES
        shape = numbers["batch"], numbers["children"], numbers["parents"], 16
        assert task.arrays[0].shape == shape
        assert task.route.keywords["iterations"] == numbers["iterations"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* iterations did not find:RuntimeWarning")
@pytest.mark.parametrize("name", bench_routing.ROUTINGS)
def test_memory_of_routing_grows_linearly(name):
    """Measure beyond the votes and their gradient; iterations not kept need no memory."""
    base = {"batch": 16, "children": 256, "parents": 16, "iterations": 3}

    def peak(**changed):
        return bench_routing.peak_memory(bench_routing.growth_task(name, **base | changed))

    least = peak()
    for key, value in base.items():
        most = 1.05 if key == "iterations" and name.endswith("implicit") else 2.2
        assert peak(**{key: 2 * value}) < most * least, key


# ---- against PyTorch


def test_a_layer_and_its_arrays_are_the_same():
    """Tasks of layers differentiate by the layer's own parameters, weights first."""
    for make, arguments in (
        (bench_tasks.dense_task, (2, 9, 4, 3)),
        (bench_tasks.conv_task, (2, 7, 2, 3, 2)),
        (bench_tasks.matrix_task, (2, 7, 2, 3, 2)),
    ):
        task = make(*arguments)
        value, gradients = task.step()
        assert task.arrays[0] is task.layer.weight.data
        assert [g.shape for g in gradients] == [a.shape for a in task.arrays]
        assert gradients[0] is task.layer.weight.grad
        assert task.step()[0] == pytest.approx(value)  # no gradient is left over from a step


def test_a_twin_of_routing_has_its_value_and_gradients():
    pytest.importorskip("torch")
    from minicaps.bench import twins_routing as twins

    kinds = set()
    for _, kind, _, task in bench_routing.contests(2):
        value, gradients = task.step()
        steps = twins.routing_steps(twins.ROUTINGS[kind], task)
        kinds.add(kind)
        assert len(steps) > 1
        for name, step in steps.items():
            found, theirs = step()
            assert found == pytest.approx(value, rel=1e-4, abs=1e-4), (kind, name)
            for ours, other in zip(gradients, theirs, strict=True):
                np.testing.assert_allclose(np.asarray(other), ours, rtol=1e-3, atol=1e-4)
    assert kinds == twins.ROUTINGS.keys()


def test_the_popular_twin_of_agreement_takes_couplings_as_constants():
    pytest.importorskip("torch")
    from minicaps.bench import twins_routing as twins

    task = bench_tasks.dense_task(2, 9, 4, 3, gradient="stop")
    value, gradients = task.step()
    popular = twins.POPULAR_ROUTINGS["dense capsules"]
    (step,) = twins.routing_steps(popular, task).values()
    found, theirs = step()
    assert found == pytest.approx(value, rel=1e-4)
    for ours, other in zip(gradients, theirs, strict=True):
        np.testing.assert_allclose(other, ours, rtol=1e-3, atol=1e-5)


def test_routings_against_torch_are_reported(tmp_path, capsys):
    pytest.importorskip("torch")
    file = tmp_path / "bench.json"
    options = ["--what", "routing", "--against", "torch", "--batch", "2", "--repeats", "1"]
    assert bench.main([*options, "--json", str(file)]) == 0
    report, printed = json.loads(file.read_text()), capsys.readouterr().out
    contests = report["routings"][0]["contests"]
    assert len(contests) == 7
    for contest in contests:
        assert contest["title"] in printed
        ours, fastest, *_ = contest["results"]
        assert ours["name"] == "minicaps"
        best = min(contest["trials"], key=lambda trial: trial["min"])
        assert fastest["name"] == best["name"]
        for row in contest["results"]:
            assert row["images_per_second"] == pytest.approx(2000 / row["median"])
    assert [row["name"] for row in contests[-1]["results"]][2:] == ["torch, popular"]
