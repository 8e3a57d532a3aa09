"""On a real GPU, if there is one: the results of the CPU, no waiting, and a complete run."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gradient_cases import CASES
from tensors import differentiate
from training_steps import make_batch, make_model, step

from minicaps import Tensor, models
from minicaps.backend import choose_device, device_of, to_host
from minicaps.data import batches as batching
from minicaps.data import load
from minicaps.errors import DeviceError
from minicaps.optim import SGD, Adam
from minicaps.train import __main__ as train


@pytest.fixture
def gpu():
    try:
        return choose_device("gpu")
    except DeviceError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_gradients(case, gpu):
    function, arrays = case.build((3, 2, 2, 3), np.random.default_rng(0))
    cotangent = np.random.default_rng(1).normal(size=function(*map(Tensor, arrays)).shape)
    expected = differentiate(function, arrays, cotangent)
    found = differentiate(function, [gpu.put(a) for a in arrays], gpu.put(cotangent))
    for array, host in zip(found, expected, strict=True):
        np.testing.assert_allclose(to_host(array), host, rtol=1e-9, atol=1e-9)


def test_a_training_step(gpu):
    def after_a_step(device):
        model = make_model(np.float64, device)
        loss, norm = step(
            model, Adam(model.named_parameters(), 1e-3), *make_batch(np.float64, device)
        )
        return float(loss), float(norm), model.state_dict()

    (loss, norm, state), (cpu_loss, cpu_norm, cpu_state) = map(after_a_step, ("gpu", "cpu"))
    assert loss == pytest.approx(cpu_loss, rel=1e-10)
    assert norm == pytest.approx(cpu_norm, rel=1e-8)
    for name, array in cpu_state.items():
        np.testing.assert_allclose(state[name], array, rtol=1e-6, atol=1e-9)


# --- The paper's network in float32 --------------------------------------------------------------


def paper(device, batch):
    """Return the network of the paper on `device`, with images and labels for it."""
    model = models.build("capsnet", (1, 28, 28), 10, preset="paper").to(device)
    split = load("strokes", limit=batch).train
    return model, device.put(split.images), device.put(split.labels)


def test_a_step_of_the_paper_is_that_of_the_cpu_to_rounding(gpu):
    def after_a_step(device):
        model, images, labels = paper(device, 16)
        loss, norm = step(model, SGD(model.named_parameters(), 0.1), images, labels)
        gradients = {name: to_host(p.grad) for name, p in model.named_parameters()}
        return [float(loss), float(norm)], gradients, model.state_dict()

    on_gpu, on_cpu = map(after_a_step, (gpu, choose_device("cpu")))
    assert on_gpu[0] == pytest.approx(on_cpu[0], rel=1e-5)
    for ours, theirs in zip(on_gpu[1:], on_cpu[1:], strict=True):
        for name, array in theirs.items():
            assert array.dtype == np.float32
            far = np.abs(ours[name] - array).max() / np.abs(array).max()
            assert far < 1e-5, name


def test_a_batch_of_128_of_the_paper(gpu):
    model, images, labels = paper(gpu, 128)
    optimizer = Adam(model.named_parameters())
    losses = [float(step(model, optimizer, images, labels, clip=10)[0]) for _ in range(5)]
    assert losses[-1] < losses[0]


@pytest.mark.filterwarnings("ignore:cupyx.allow_synchronize")  # it may miss some waits
def test_no_step_waits(gpu):
    import cupyx

    model, batch = make_model(device="gpu"), make_batch(device="gpu")
    optimizer = Adam(model.named_parameters())
    step(model, optimizer, *batch)  # compiles the kernels
    with cupyx.allow_synchronize(False):
        step(model, optimizer, *batch)


TF32 = """
import numpy as np
from minicaps.backend import choose_device, to_host

device = choose_device("gpu")
device.allow_tf32({allowed})
a = np.random.default_rng(0).random((256, 256), np.float32)
exact = a.astype(float) @ a.astype(float)
print(np.abs(to_host(device.put(a) @ device.put(a)) / exact - 1).max())
"""


@pytest.mark.parametrize("allowed", [False, True])
def test_tf32_rounds_products(gpu, allowed):
    """Runs in another process, because CuPy reads the setting only once."""
    if int(gpu.xp.cuda.Device().compute_capability) < 80:
        pytest.skip("this GPU has no TF32")
    done = subprocess.run(
        [sys.executable, "-c", TF32.format(allowed=allowed)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    error = float(done.stdout)
    assert error < 1e-2
    assert (error > 1e-5) == allowed


# --- Data, and a complete run --------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"shift": 2},
        {"shift": 2, "rotate": 30, "zoom": 0.2, "flip": "both", "brightness": 0.5},
    ],
)
def test_batches_made_there_or_copied_there_are_those_of_the_cpu(gpu, changes):
    split, key = load("strokes", limit=100).train, {"seed": 3, "epoch": 1, **changes}
    there = batching.resident(split, gpu)
    assert device_of(there.images) == device_of(there.labels) == "gpu"
    made = batching.batches(there, 16, **key)
    for ours, theirs in zip(made, batching.batches(split, 16, **key), strict=True):
        for array, host in zip(ours, theirs, strict=True):
            assert device_of(array) == "gpu"
            np.testing.assert_array_equal(to_host(array), host)
            np.testing.assert_array_equal(to_host(gpu.put(host)), host)


@pytest.mark.parametrize("share", [batching.SHARE, 0.0], ids=["resident", "copied"])
def test_the_trainer(gpu, tmp_path, monkeypatch, share):
    monkeypatch.setattr(batching, "SHARE", share)
    options = ["--limit", "200", "--epochs", "1", "--shift", "1", "--quiet", "--device", "gpu"]
    assert train.main([*options, "--out", str(tmp_path / "run")]) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["device"].endswith("(CuPy)") and summary["test_samples"] == 2000
