"""The benchmark compares equals, reports what it measured, and says what it needs."""

import json
import platform
import statistics
import subprocess
import sys
import types

import numpy as np
import pytest

from minicaps import allocator, bench, bench_routing, bench_timing, models

TWINS = [f"channels {end}, {kind}" for end in ("first", "last") for kind in ("matmul", "einsum")]
TWINS.append("popular")


def network(preset, side, **options):
    rng = np.random.default_rng(0)
    model = models.build("capsnet", (2, side, side), 5, preset=preset, seed=1, **options)
    images = rng.random((4, 2, side, side), dtype=np.float32)
    return model, images, rng.integers(0, 5, 4)


@pytest.mark.parametrize(("preset", "side"), [("small", 20), ("paper", 18)])
@pytest.mark.parametrize("name", TWINS)
def test_a_twin_has_the_loss_and_the_gradients_of_minicaps(preset, side, name):
    torch = pytest.importorskip("torch")
    from minicaps import bench_torch

    gradient = "stop" if name == "popular" else "unrolled"
    model, images, labels = network(preset, side, gradient=gradient)
    twin = bench_torch.Twin(model, {**bench_torch.VARIANTS, **bench_torch.POPULAR}[name])
    ours = bench.training_step(model, images, labels)
    theirs = twin.step(torch.from_numpy(images), torch.from_numpy(labels))
    assert ours() == pytest.approx(theirs, rel=1e-5)
    gradients = twin.gradients()
    assert gradients.keys() == dict(model.named_parameters()).keys()
    for parameter, p in model.named_parameters():
        error = np.linalg.norm(p.grad - gradients[parameter]) / np.linalg.norm(p.grad)
        assert error < 1e-4, parameter


def test_a_twin_takes_the_same_steps():
    torch = pytest.importorskip("torch")
    from minicaps import bench_torch

    model, images, labels = network("small", 20)
    twin = bench_torch.Twin(model, bench_torch.VARIANTS["channels last, matmul"])
    ours = bench.training_step(model, images, labels)
    before = [ours() for _ in range(5)]
    after = [twin.step(torch.from_numpy(images), torch.from_numpy(labels)) for _ in range(5)]
    assert before == pytest.approx(after, rel=1e-3)
    assert before[-1] < before[0]


def test_the_report_is_of_what_was_measured(tmp_path, capsys, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(bench_timing, "PAUSE", 0)
    file = tmp_path / "bench.json"
    options = ["--against", "torch", "--preset", "small", "--batch", "4", "--repeats", "3"]
    assert bench.main([*options, "--json", str(file)]) == 0
    found = json.loads(file.read_text())
    ours, fastest, popular = found["results"]
    assert ours["name"] == "minicaps" and popular["name"] == "torch, popular"
    best = min(found["trials"], key=lambda trial: trial["median"])
    assert fastest["name"] == best["name"]
    assert [trial["name"] for trial in found["trials"]] == [f"torch, {name}" for name in TWINS[:-1]]
    for result in found["results"]:
        times = result["milliseconds"]
        assert len(times) == 3 and min(times) > 0
        assert result["median"] == statistics.median(times)
        assert result["images_per_second"] == pytest.approx(4000 / result["median"])
        assert result["ratio"] == pytest.approx(result["median"] / ours["median"])
    printed = capsys.readouterr().out
    for word in (
        ours["name"],
        fastest["name"],
        "popular",
        f"{found['parameters']:,}",
        found["cpu"],
    ):
        assert word in printed


def test_alone_it_measures_alone(tmp_path):
    file = tmp_path / "bench.json"
    assert (
        bench.main(["--preset", "small", "--batch", "2", "--repeats", "1", "--json", str(file)])
        == 0
    )
    (result,) = json.loads(file.read_text())["results"]
    assert result["name"] == "minicaps"


def test_without_torch_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert bench.main(["--against", "torch"]) == 2
    assert 'pip install "minicaps[torch]"' in capsys.readouterr().err


@pytest.mark.parametrize(
    "options", [["--batch", "0"], ["--repeats", "x"], ["--json", "/nowhere/x.json"]]
)
def test_senseless_options_are_refused_before_any_work(options, monkeypatch, capsys):
    monkeypatch.setattr(models, "build", lambda *_, **__: pytest.fail("work was done"))
    with pytest.raises(SystemExit) as stop:
        bench.main(options)
    assert stop.value.code == 2
    assert options[0] in capsys.readouterr().err


# ---- routings


@pytest.fixture
def tiny_routings(monkeypatch):
    """The table and the contests of routings, in a moment."""
    base = {"children": 6, "parents": 3, "iterations": 2}
    sizes = {"base": base} | {f"2 × {name}": base | {name: 2 * n} for name, n in base.items()}
    monkeypatch.setattr(bench_routing, "SIZES", sizes)
    monkeypatch.setattr(bench_routing, "EM_LAYERS", ((3, 5), (2, 7)))
    monkeypatch.setattr(bench_routing, "EM_PARENTS", 4)
    monkeypatch.setattr(bench_routing, "DIGITCAPS", (9, 4, 3))
    monkeypatch.setattr(bench_timing, "PAUSE", 0)
    return sizes


@pytest.mark.filterwarnings("error")
def test_the_table_has_every_routing_at_every_size(tiny_routings, tmp_path, capsys):
    file = tmp_path / "bench.json"
    options = ["--what", "routing", "--batch", "2", "--repeats", "3", "--json", str(file)]
    assert bench.main(options) == 0
    table = json.loads(file.read_text())["table"]
    cells = [(row["routing"], row["size"]) for row in table]
    assert cells == [(name, size) for name in bench_routing.ROUTINGS for size in tiny_routings]
    for first in range(0, len(table), 4):
        base = table[first]
        for row in table[first : first + 4]:
            assert len(row["milliseconds"]) == 3
            assert row["median"] == statistics.median(row["milliseconds"])
            assert row["time_ratio"] == pytest.approx(row["median"] / base["median"])
            assert row["memory_ratio"] == pytest.approx(row["mebibytes"] / base["mebibytes"])
    printed = capsys.readouterr().out
    for name in (*bench_routing.ROUTINGS, *tiny_routings):
        assert name in printed


def test_the_table_says_what_was_measured(tiny_routings, tmp_path, capsys, monkeypatch):
    """A routing that takes I·J·r milliseconds and I·J·r KiB."""
    now = 0.0

    def slow(votes, *, iterations):
        nonlocal now
        size = votes.shape[1] * votes.shape[2] * iterations
        now += size / 1000
        room = np.zeros((size, 1024), np.uint8)
        return [(votes * int(room[0, 0])).sum(axis=1)]

    clock = types.SimpleNamespace(perf_counter=lambda: now, sleep=lambda seconds: None)
    monkeypatch.setattr(bench_timing, "time", clock)
    monkeypatch.setattr(bench_routing, "ROUTINGS", {"slow": slow})
    file = tmp_path / "bench.json"
    assert bench.main(["--what", "routing", "--batch", "1", "--json", str(file)]) == 0
    base, *twice = json.loads(file.read_text())["table"]
    assert base["median"] == pytest.approx(36) and base["time_ratio"] == 1
    assert 36 <= 1024 * base["mebibytes"] < 48  # its own temporaries too
    for row in twice:
        assert row["median"] == pytest.approx(72) and row["time_ratio"] == pytest.approx(2)
        assert 72 <= 1024 * row["mebibytes"] < 84
    times = next(line for line in capsys.readouterr().out.splitlines() if "slow" in line)
    assert times.split() == ["slow", "ms", "36.0", *["72.0", "(2.00)"] * 3]


def test_a_size_means_what_it_says(tiny_routings):
    for size, numbers in tiny_routings.items():
        for name in ("distance", "em"):
            task = bench_routing.growth_task(2, name, size)
            assert task.arrays[0].shape == (2, numbers["children"], numbers["parents"], 16)
            assert task.route.keywords["iterations"] == numbers["iterations"]


@pytest.mark.filterwarnings("ignore:.* rounds did not find:RuntimeWarning")
def test_memory_of_routing_grows_linearly():
    """Beyond the votes and their gradient; iterations that are not kept need none."""
    for name in bench_routing.ROUTINGS:
        base, children, parents, iterations = (
            bench_routing.peak_memory(bench_routing.growth_task(16, name, size))
            for size in bench_routing.SIZES
        )
        assert children < 2.2 * base and parents < 2.2 * base and iterations < 2.2 * base, name
        if name.endswith("implicit"):
            assert iterations < 1.05 * base, name


def test_a_twin_of_routing_has_its_value_and_gradients(tiny_routings):
    pytest.importorskip("torch")
    from minicaps import bench_torch

    for _, kind, _, task in bench_routing.contests(2):
        value, gradients = task.step()
        twins = bench_torch.routing_steps(bench_torch.ROUTINGS[kind], task)
        assert len(twins) > 1
        for name, step in twins.items():
            found, theirs = step()
            assert found == pytest.approx(value, rel=1e-4, abs=1e-4), name
            for ours, other in zip(gradients, theirs, strict=True):
                np.testing.assert_allclose(np.asarray(other), ours, rtol=1e-3, atol=1e-4)


def test_the_popular_twin_of_agreement_takes_couplings_as_constants(tiny_routings):
    pytest.importorskip("torch")
    from minicaps import bench_torch
    from minicaps.routing import agreement, make_votes

    def stopped(weight, capsules):
        return agreement(make_votes(capsules, weight), gradient="stop")

    task = bench_routing.agreement_task(stopped, 2, *bench_routing.DIGITCAPS)
    value, gradients = task.step()
    (popular,) = bench_torch.routing_steps(bench_torch.POPULAR_ROUTINGS["agreement"], task).values()
    found, theirs = popular()
    assert found == pytest.approx(value, rel=1e-4)
    for ours, other in zip(gradients, theirs, strict=True):
        np.testing.assert_allclose(other, ours, rtol=1e-3, atol=1e-5)


def test_routings_against_torch_are_reported(tiny_routings, tmp_path, capsys):
    pytest.importorskip("torch")
    file = tmp_path / "bench.json"
    options = ["--what", "routing", "--against", "torch", "--batch", "2", "--repeats", "1"]
    assert bench.main([*options, "--json", str(file)]) == 0
    found, printed = json.loads(file.read_text()), capsys.readouterr().out
    assert len(found["contests"]) == 5
    for contest in found["contests"]:
        assert contest["title"] in printed
        assert contest["results"][0]["name"] == "minicaps"


def test_a_preset_has_no_effect_on_routings(capsys):
    with pytest.raises(SystemExit) as stop:
        bench.main(["--what", "routing", "--preset", "small"])
    assert stop.value.code == 2
    assert "--preset has no effect with --what routing" in capsys.readouterr().err


# ---- the allocator


FAULTS = """
import resource, numpy, minicaps, minicaps.bench
from minicaps.allocator import keep_memory

def faults():
    numpy.ones(2**23)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        numpy.ones(2**23)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(faults(), keep_memory(), faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is about glibc's allocator")
def test_kept_memory_is_not_paged_in_again_and_importing_keeps_none():
    run = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
    before, agreed, after = run.stdout.split()
    assert agreed == "True"
    assert int(before) >= 4 * 2**26 // 2**21  # each array, in pages of at most 2 MiB
    assert int(after) < int(before) / 4


def test_another_c_library_is_left_alone(monkeypatch):
    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda name: object())
    assert allocator.keep_memory() is False
