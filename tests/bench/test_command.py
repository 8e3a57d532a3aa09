"""Test what `minicaps.bench` measures, counts, reports and requires."""

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import types

import numpy as np
import pytest

from minicaps import models
from minicaps.bench import __main__ as bench
from minicaps.bench import count as bench_count
from minicaps.bench import memory as bench_memory
from minicaps.bench import network as bench_network
from minicaps.bench import timing as bench_timing
from minicaps.bench.cases import Case, TrainingStep, inference
from minicaps.cli import allocator
from minicaps.graph import is_recording
from minicaps.nn import Module
from minicaps.routing import Routed


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(bench_timing, "PAUSE", 0)


def small_network(batch):
    rng = np.random.default_rng(0)
    images = rng.random((batch, 2, 20, 20), dtype=np.float32)
    return (
        models.build("capsnet", (2, 20, 20), 5, preset="small"),
        images,
        rng.integers(0, 5, batch),
    )


# ---- the command


def test_all_cases_are_measured_and_printed(tmp_path, capsys):
    file = tmp_path / "bench.json"
    options = ["--preset", "small", "--batch", "1", "2", "--repeats", "3", "--json", str(file)]
    assert bench.main(options) == 0
    report, printed = json.loads(file.read_text()), capsys.readouterr().out
    cases = report["network"]["cases"]
    combinations = [("train", 1), ("train", 2), ("infer", 1), ("infer", 2)]
    assert [(case["kind"], case["batch"]) for case in cases] == combinations
    for case in cases:
        assert [row["name"] for row in case["results"]] == ["minicaps", "matrix products alone"]
        for row in case["results"]:
            times = row["milliseconds"]
            assert len(times) == 3 and min(times) > 0
            assert (row["min"], row["max"]) == (min(times), max(times))
            assert row["median"] == statistics.median(times)
            assert f"{row['min']:,.1f} – {row['max']:,.1f}" in printed
        ours = case["results"][0]
        assert ours["images_per_second"] == pytest.approx(1000 * case["batch"] / ours["median"])
        assert f"{ours['images_per_second']:,.1f}" in printed
        assert f"{case['parameters']:,} parameters" in printed
    for word in (report["cpu"], report["blas"], report["numpy"], f"{report['threads']} threads"):
        assert word in printed
    assert max(map(len, printed.splitlines())) <= 100


def test_by_default_the_network_of_the_paper_is_trained_and_used(monkeypatch):
    asked = []
    monkeypatch.setattr(bench_network, "compare", lambda *args: asked.append(args))
    assert bench.main([]) == 0
    assert asked == [([Case("train", "paper", 128), Case("infer", "paper", 128)], [], 5)]


@pytest.mark.parametrize(
    ("package", "peer", "name"),
    [
        ("torch", "torch", "PyTorch"),
        ("onnx", "onnx", "ONNX Runtime"),
        ("onnxruntime", "onnx", "ONNX Runtime"),
    ],
)
def test_without_a_peer_it_says_what_to_install(package, peer, name, monkeypatch, capsys):
    for optional in ("onnx", "onnxruntime"):
        monkeypatch.setitem(sys.modules, optional, types.ModuleType(optional))
    monkeypatch.setitem(sys.modules, package, None)
    assert bench.main(["--against", peer]) == 2
    (told,) = capsys.readouterr().err.splitlines()
    assert told.startswith(f"minicaps.bench: {name} is missing (")
    assert told.endswith(f'install it with: pip install -e ".[{peer}]"')


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--batch", "0"], "--batch"),
        (["--batch", "8", "x"], "--batch"),
        (["--repeats", "x"], "--repeats"),
        (["--what", "step"], "--what"),
        (["--preset", "large"], "--preset"),
        (["--what", "routing", "--preset", "small"], "--preset has no effect with --what routing"),
        (["--profile", "--what", "train", "routing"], "--profile shows only the ops of CapsNet"),
        (["--profile", "--against", "torch"], "--profile shows only the ops of minicaps"),
        (["--profile", "--what", "scaling"], "--profile shows only the ops of CapsNet"),
        (["--what", "scaling", "--against", "torch"], "--against has no effect with --what scal"),
        (["--figure", "x.png"], "--figure draws the scaling: add --what scaling"),
        (["--what", "scaling", "--figure", "x.png", "--batch", "1", "2"], "for one --batch"),
        (["--against", "tensorflow"], "--against"),
        (["--what", "train", "--against", "torch", "onnx"], "onnx only joins in inference"),
        (["--what", "routing", "--against", "onnx"], "onnx only joins in inference"),
    ],
)
def test_senseless_options_are_refused_before_any_work(options, reason, monkeypatch, capsys):
    monkeypatch.setattr(bench, "_run", lambda options: pytest.fail("work was done"))
    with pytest.raises(SystemExit) as stop:
        bench.main(options)
    assert stop.value.code == 2
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--json", "--figure"])
def test_a_file_that_cannot_be_written_is_told_before_any_work(
    option, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bench, "_measure", lambda options: pytest.fail("work was done"))
    (tmp_path / "file").touch()
    for place, why in (
        ("file/x.png", "a file exists where a folder is needed"),
        (".", "it exists and is not a regular file"),
    ):
        assert bench.main(["--what", "scaling", option, place]) == 1
        told = f"minicaps.bench: cannot write {place}: {why}; choose another {option}\n"
        assert capsys.readouterr().err == told


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="requires POSIX permissions")
def test_a_file_without_permission_is_told_before_any_work():
    """Run as an ordinary user, since root may write anywhere."""
    code = """
import os, sys
from minicaps.bench import __main__ as bench
if os.getuid() == 0:
    os.setuid(65534)
sys.exit(bench.main(["--json", sys.argv[1]]))
"""
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o555)
        line = [sys.executable, "-c", code, f"{place}/x.json"]
        done = subprocess.run(line, capture_output=True, text=True)
    told = f"cannot write {place}/x.json: Permission denied; choose another --json\n"
    assert (done.returncode, done.stdout) == (1, "") and done.stderr.endswith(told)


def test_it_can_be_interrupted(monkeypatch, capsys):
    def interrupted(options):
        raise KeyboardInterrupt

    monkeypatch.setattr(bench, "_run", interrupted)
    assert bench.main([]) == 130
    assert "interrupted" in capsys.readouterr().err


# ---- the steps


@pytest.mark.slow
def test_a_training_step_trains():
    step = TrainingStep(*small_network(4))
    losses = [step() for _ in range(5)]
    assert losses[-1] < losses[0]


def test_inference_gives_the_lengths_and_changes_nothing():
    model, images, _ = small_network(3)
    before = model.state_dict()
    lengths = inference(model, images)()
    assert lengths.shape == (3, 5) and (lengths > 0).all() and (lengths < 1).all()
    after = model.state_dict()
    assert all((before[name] == after[name]).all() for name in before)
    assert all(p.grad is None for p in model.parameters())


def test_inference_keeps_no_graph_and_evaluates():
    seen = []

    class Network(Module):
        def forward(self, images):
            seen.append((is_recording.get(), self.training))
            return Routed(None, images, None)

    inference(Network(), np.ones((2, 3), np.float32))()
    assert seen == [(False, False)]


# ---- what is counted


def test_operations_are_those_counted_by_hand():
    """Count multiplications per layer and image; the first layer needs no gradient of the image."""
    first = 16 * 16 * (2 * 5 * 5) * 32  # 2 channels of 20×20 pixels, 32 kernels 5×5
    others = 6 * 6 * (32 * 5 * 5) * 64  # stride 2, 64 kernels
    others += 1 * (64 * 5 * 5) * 64  # stride 2, 8 capsules of 8
    others += 8 * 8 * (5 * 16)  # votes of 8 capsules of 8 for 5 of 16
    decoder = 80 * 128 + 128 * 256 + 256 * 800
    model = small_network(1)[0]
    used = bench_count.products(model, 3, False)
    assert bench_count.operations(used, False) == 2 * 3 * (first + others)
    trained = bench_count.products(model, 3, True)
    expected = 2 * 3 * (2 * first + 3 * (others + decoder))
    assert bench_count.operations(trained, True) == expected


def test_the_second_convolution_of_the_paper_takes_147_gflop():
    model = models.build("capsnet", (1, 28, 28), 10)
    second = bench_count.convolutions(bench_count.products(model, 128, True))[1]
    assert (second.rows, second.inner, second.columns) == (4608, 20736, 256)
    assert second.operations(True) == pytest.approx(147e9, rel=0.01)


@pytest.mark.parametrize("train", [True, False])
def test_the_floor_does_the_products_of_convolutions_and_no_others(train, monkeypatch):
    monkeypatch.setattr(bench_count, "PATCHES", 10_000)  # splits the products into blocks
    found = bench_count.convolutions(bench_count.products(small_network(1)[0], 3, train))
    assert len(found) == 3
    done = []

    def multiply(a, b, out):
        assert out.shape == (a.shape[0], b.shape[1])
        np.matmul(a, b, out=out)
        done.append(2 * out.size * a.shape[1])

    bench_count.floor_step(found, train, multiply)()
    assert sum(done) == bench_count.operations(found, train)
    assert len(done) > 3 * len(found)


def test_columns_follow_from_the_times():
    networks = [{"median": 500.0}, {"median": 2000.0}]
    parts = [{"median": 1000.0}, {"median": 800.0}]
    bench_network.add_columns(networks, parts, images=100, operations=4e9, least=2e9)
    assert [row["images_per_second"] for row in networks] == [200, 50]
    assert [row["gflops"] for row in networks] == pytest.approx([8, 2])
    assert [row["gflops"] for row in parts] == pytest.approx([2, 2.5])
    # The faster products are the floor; taking less time gives more than 100 %
    assert [row["floor"] for row in networks] == pytest.approx([1.6, 0.4])
    assert [row["floor"] for row in parts] == pytest.approx([0.8, 1])


# ---- timing and printing


@pytest.fixture
def steps_that_take(monkeypatch):
    """Make step functions that take the given milliseconds in successive calls."""
    now = 0.0
    clock = types.SimpleNamespace(perf_counter=lambda: now)
    monkeypatch.setattr(bench_timing, "time", clock)

    def make(*milliseconds):
        left = iter(milliseconds)

        def step():
            nonlocal now
            now += next(left) / 1000

        return step

    return make


def test_the_first_run_is_a_warm_up(steps_that_take):
    racers = {"a": steps_that_take(900, 3, 1, 8), "b": steps_that_take(1, 6, 6, 7)}
    a, b = bench_timing.summarise(bench_timing.race(racers, 3))
    assert a["milliseconds"] == pytest.approx([3, 1, 8])
    assert (a["median"], a["min"], a["max"]) == pytest.approx((3, 1, 8))
    assert (a["ratio"], b["ratio"]) == pytest.approx((1, 2))


def test_the_fastest_rival_is_raced_and_others_may_join(steps_that_take):
    assert bench_timing.TRIALS == 3
    racers = {"ours": steps_that_take(1, 2), "last": steps_that_take(1, 8)}
    rivals = {"slow": steps_that_take(9, 5, 5, 5), "fast": steps_that_take(9, 9, 4, 9, 9, 6)}
    joined = []

    def join(fastest):
        joined.append(fastest)
        return {"compiled": steps_that_take(1, 3)}

    found = bench_timing.contest(racers, rivals, 1, join)
    assert joined == ["fast"] and rivals == {}
    assert [row["name"] for row in found["trials"]] == ["slow", "fast"]
    names = ["ours", "fast", "compiled", "last"]
    assert [row["name"] for row in found["results"]] == names
    assert [row["ratio"] for row in found["results"]] == pytest.approx([1, 3, 1.5, 4])


def test_a_row_shows_what_there_is(capsys):
    row = {"name": "ours", "median": 1234.56, "min": 1200, "max": 1300.04, "ratio": 1}
    more = {"images_per_second": 103.7, "gflops": 125.03, "floor": 1.64, "mebibytes": 672.2}
    bench_timing.print_heads()
    bench_timing.print_results({"trials": [], "results": [{**row, **more}, row]})
    heads, full, bare = capsys.readouterr().out.splitlines()
    assert heads.split() == [
        "median",
        "min",
        "–",
        "max",
        "images/s",
        "GFLOP/s",
        "floor",
        "MiB",
        "×",
        "ours",
    ]
    assert full.split() == [
        "ours",
        "1,234.6",
        "1,200.0",
        "–",
        "1,300.0",
        "103.7",
        "125.0",
        "164%",
        "672",
        "1.00",
    ]
    assert bare.split() == ["ours", "1,234.6", "1,200.0", "–", "1,300.0", "1.00"]
    assert len(heads) == len(full) == len(bare) == 100


# ---- memory

needs_status = pytest.mark.skipif(
    bench_memory.process_peak() is None, reason="the system does not report memory"
)


@pytest.mark.slow
@needs_status
def test_memory_grows_with_the_batch():
    few, many = (bench_memory.peak_memory(Case("infer", "small", n), "minicaps") for n in (8, 512))
    assert few > 0
    assert many - few > 500 * 32 * 24 * 24 * 4  # bytes of the first convolution's output


@pytest.mark.slow
@needs_status
def test_memory_of_training_holds_what_the_backward_pass_needs():
    used, trained = (
        bench_memory.peak_memory(Case(kind, "small", 256), "minicaps")
        for kind in ("infer", "train")
    )
    assert trained - used > 256 * 32 * 24 * 24 * 4


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="units are converted elsewhere")
def test_the_peak_is_in_bytes():
    import resource

    here = np.ones(2**25)  # 256 MiB
    most = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert here.nbytes < bench_memory.process_peak() < 1.05 * most


@pytest.mark.slow
@needs_status
def test_memory_is_not_that_of_the_process_that_measures():
    here = np.ones(2**26)  # 512 MiB
    assert bench_memory.process_peak() > here.nbytes
    assert bench_memory.peak_memory(Case("infer", "small", 1), "minicaps") < here.nbytes / 4


@pytest.mark.slow
def test_a_measurement_that_fails_says_why():
    with pytest.raises(RuntimeError, match=r"memory of minicaps .* unknown preset 'huge'"):
        bench_memory.peak_memory(Case("infer", "huge", 1), "minicaps")


def test_memory_that_cannot_be_measured_is_left_out(monkeypatch, capsys):
    def fail(case, side):
        raise RuntimeError("no room")

    monkeypatch.setattr(bench_network, "peak_memory", fail)
    options = ["--what", "infer", "--preset", "small", "--batch", "1", "--repeats", "1"]
    assert bench.main(options) == 0
    assert "minicaps.bench: no room" in capsys.readouterr().err


# ---- the allocator


FAULTS = """
import resource, numpy, minicaps, minicaps.bench
from minicaps.cli.allocator import keep_memory

def faults():
    numpy.ones(2**23)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        numpy.ones(2**23)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(faults(), keep_memory(), faults())
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="tests the allocator of glibc")
def test_kept_memory_is_not_paged_in_again_and_importing_keeps_none():
    run = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
    before, agreed, after = run.stdout.split()
    assert agreed == "True"
    assert int(before) >= 4 * 2**26 // 2**21  # each array, in pages of at most 2 MiB
    assert int(after) < int(before) / 4


def test_another_c_library_is_left_alone(monkeypatch):
    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda name: object())
    assert allocator.keep_memory() is False
