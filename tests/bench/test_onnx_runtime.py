"""ONNX Runtime computes the same as minicaps, and is reported next to it."""

import json

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from minicaps import models  # noqa: E402
from minicaps.bench import __main__ as bench  # noqa: E402
from minicaps.bench import memory as bench_memory  # noqa: E402
from minicaps.bench import network as bench_network  # noqa: E402
from minicaps.bench import onnx_peer  # noqa: E402
from minicaps.bench import timing as bench_timing  # noqa: E402
from minicaps.bench.cases import Case, inference  # noqa: E402
from minicaps.threads import cores  # noqa: E402


@pytest.mark.parametrize("preset", models.CAPSNET_PRESETS)
def test_it_finds_the_lengths_of_minicaps_for_the_images_of_the_benchmark(preset):
    model, images, _ = Case("infer", preset, 2).material()
    lengths = onnx_peer.infer(model, images)()
    np.testing.assert_allclose(lengths, inference(model, images)(), rtol=0, atol=1e-6)


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run the command on a small case; return the exit code, the JSON report and the output."""
    monkeypatch.setattr(bench_timing, "PAUSE", 0)
    file = tmp_path / "bench.json"

    def run(*options):
        options = ["--preset", "small", "--batch", "4", "--repeats", "3", *options]
        code = bench.main([*options, "--json", str(file)])
        return code, json.loads(file.read_text()) if code == 0 else None, capsys.readouterr()

    return run


def test_it_takes_turns_in_inference_and_not_in_training(run):
    code, report, told = run("--against", "onnx")
    assert code == 0 and "torch" not in report
    version = onnxruntime.__version__
    assert (report["onnxruntime"], report["onnxruntime_threads"]) == (version, cores())
    assert f"\nonnxruntime {version}: {cores()} threads\n" in told.out
    train, infer = report["network"]["cases"]
    assert [row["name"] for row in train["results"]] == ["minicaps", "matrix products alone"]
    ours, theirs, alone = infer["results"]
    names = ("minicaps", "onnxruntime", "matrix products alone")
    assert (ours["name"], theirs["name"], alone["name"]) == names
    assert len(theirs["milliseconds"]) == 3
    assert theirs["ratio"] == pytest.approx(theirs["median"] / ours["median"])
    (line,) = [line for line in told.out.splitlines() if line.startswith("onnxruntime  ")]
    assert f"{theirs['min']:,.1f} – {theirs['max']:,.1f}" in line
    assert line.endswith(f" {theirs['ratio']:,.2f}")
    if bench_memory.process_peak() is not None:
        assert theirs["mebibytes"] > 0


def test_it_joins_pytorch(run, monkeypatch):
    twins = pytest.importorskip("minicaps.bench.twins", exc_type=ImportError)
    monkeypatch.setattr(twins, "compiled", lambda *_: (lambda: None, 1.0))
    monkeypatch.setattr(bench_network, "peak_memory", lambda *_: None)
    code, report, _ = run("--against", "torch", "onnx", "--what", "infer")
    names = [row["name"] for row in report["network"]["cases"][0]["results"]]
    assert code == 0 and names[3:5] == ["torch, popular", "onnxruntime"]


@pytest.mark.parametrize("error", [2e-5, np.nan])
def test_other_lengths_are_not_timed(error, run, monkeypatch):
    infer = onnx_peer.infer
    monkeypatch.setattr(onnx_peer, "infer", lambda *args: lambda: infer(*args)() + error)
    monkeypatch.setattr(bench_network, "contest", lambda *_: pytest.fail("work was timed"))
    code, _, told = run("--against", "onnx", "--what", "infer")
    (message,) = told.err.splitlines()
    assert code == 1 and "lengths differ from those of minicaps by" in message
