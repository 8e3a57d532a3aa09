"""PyTorch twins compute the same as minicaps, and are reported next to it."""

import json
import statistics

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from minicaps import models  # noqa: E402
from minicaps.bench import __main__ as bench  # noqa: E402
from minicaps.bench import memory as bench_memory  # noqa: E402
from minicaps.bench import network as bench_network  # noqa: E402
from minicaps.bench import timing as bench_timing  # noqa: E402
from minicaps.bench import twins as bench_torch  # noqa: E402
from minicaps.bench.cases import Case, TrainingStep, inference  # noqa: E402

TWINS = {**bench_torch.VARIANTS, **bench_torch.POPULAR}


def network(preset, side, **options):
    rng = np.random.default_rng(0)
    model = models.build("capsnet", (2, side, side), 5, preset=preset, seed=1, **options)
    images = rng.random((4, 2, side, side), dtype=np.float32)
    return model, images, rng.integers(0, 5, 4)


def as_popular(name):
    return {"gradient": "stop"} if name == "popular" else {}


@pytest.mark.parametrize(("preset", "side"), [("small", 20), ("paper", 18)])
@pytest.mark.parametrize("name", TWINS)
def test_a_twin_has_the_loss_and_the_gradients_of_minicaps(preset, side, name):
    model, images, labels = network(preset, side, **as_popular(name))
    twin = bench_torch.Twin(model, TWINS[name])
    theirs = twin.step(torch.from_numpy(images), torch.from_numpy(labels))
    assert TrainingStep(model, images, labels)() == pytest.approx(theirs, rel=1e-5)
    assert_same_gradients(model, twin)


def assert_same_gradients(model, twin):
    gradients = twin.gradients()
    assert gradients.keys() == dict(model.named_parameters()).keys()
    for parameter, p in model.named_parameters():
        error = np.linalg.norm(p.grad - gradients[parameter]) / np.linalg.norm(p.grad)
        assert error < 1e-4, parameter


@pytest.mark.parametrize("name", TWINS)
def test_a_twin_finds_the_same_lengths(name):
    model, *batch = material = network("small", 20)
    (step,) = bench_torch.steps({name: TWINS[name]}, Case("infer", "small", 4), material).values()
    np.testing.assert_allclose(step(), inference(model, batch[0])(), rtol=1e-4)


def test_a_twin_takes_the_same_steps():
    material = network("small", 20)
    case = Case("train", "small", 4)
    name = "channels last, matmul"
    (step,) = bench_torch.steps({name: TWINS[name]}, case, material).values()
    ours = case.step(*material)
    before, after = [ours() for _ in range(5)], [step() for _ in range(5)]
    assert before == pytest.approx(after, rel=1e-3)
    assert before[-1] < before[0]


@pytest.fixture
def compiler():
    from torch._inductor.cpp_builder import get_cpp_compiler

    try:
        get_cpp_compiler()
    except RuntimeError:
        pytest.skip("torch.compile needs a C++ compiler, but none was found")


def test_compiled_twins_compute_the_same(compiler):
    """Test compiled against eager twins; the step that compiles also trains."""
    material = network("small", 20)
    name = "torch, channels last, matmul"
    train = Case("train", "small", 4)
    step, seconds = bench_torch.compiled(name, train, material)
    ours = train.step(*material)
    losses = [ours() for _ in range(4)]
    assert [step() for _ in range(3)] == pytest.approx(losses[1:], rel=1e-3)
    assert seconds > 0

    material = network("small", 20)
    step, _ = bench_torch.compiled(name, Case("infer", "small", 4), material)
    np.testing.assert_allclose(step(), inference(*material[:2])(), rtol=1e-4)


# ---- the report


@pytest.fixture
def report(tmp_path, monkeypatch, capsys):
    """Run the command on a small case; return its JSON report and its output."""
    monkeypatch.setattr(bench_timing, "PAUSE", 0)
    file = tmp_path / "bench.json"

    def run(compiled, kind):
        monkeypatch.setattr(bench_torch, "compiled", compiled)
        options = ["--against", "torch", "--preset", "small", "--batch", "4", "--repeats", "3"]
        assert bench.main([*options, "--what", kind, "--json", str(file)]) == 0
        return json.loads(file.read_text()), capsys.readouterr().out

    return run


def test_all_racers_are_reported(report):
    written, printed = report(lambda *_: (lambda: None, 12.34), "train")
    assert written["torch"] == torch.__version__ and written["torch"] in printed
    assert written["torch_threads"] == torch.get_num_threads()
    (case,) = written["network"]["cases"]
    assert [trial["name"] for trial in case["trials"]] == [
        f"torch, {name}" for name in bench_torch.VARIANTS
    ]
    best = min(case["trials"], key=lambda trial: trial["min"])["name"]
    names = ["minicaps", best, "torch.compile of the same", "torch, popular"]
    alone = ["matrix products alone", "matrix products alone, torch"]
    rows = case["results"]
    assert [row["name"] for row in rows] == names + alone
    floor = min(row["median"] for row in rows[-2:])
    for row in rows:
        assert row["median"] == statistics.median(row["milliseconds"])
        assert row["ratio"] == pytest.approx(row["median"] / rows[0]["median"])
        assert row["floor"] == pytest.approx(floor / row["median"])
        assert row["name"] in printed
    assert case["compile_seconds"] == 12.34 and "took 12.3 s" in printed
    if bench_memory.process_peak() is not None:
        has_memory = [row["name"] for row in rows if row.get("mebibytes", 0) > 0]
        assert has_memory == [names[0], names[1], names[3]]


def test_what_cannot_be_compiled_is_left_out_and_the_reason_told(report, monkeypatch):
    def fail(*_):
        raise OSError("no compiler\nand much more")

    monkeypatch.setattr(bench_network, "peak_memory", lambda *_: None)
    written, printed = report(fail, "infer")
    (case,) = written["network"]["cases"]
    assert case["compile_error"] == "OSError: no compiler"
    assert "torch.compile is left out: OSError: no compiler\n" in printed
    assert "torch.compile of the same" not in {row["name"] for row in case["results"]}
    assert not any("mebibytes" in row for row in case["results"])


@pytest.mark.skipif(bench_memory.process_peak() is None, reason="the system does not report memory")
def test_memory_of_a_twin_is_measured_in_the_same_way():
    peak = bench_memory.peak_memory(Case("infer", "small", 1024), "torch, popular")
    assert peak > 1024 * 32 * 24 * 24 * 4  # bytes of the first convolution's output
