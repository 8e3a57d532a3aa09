"""On a real GPU, where there is one: the numbers of the CPU, and a whole run."""

import json

import numpy as np
import pytest
from gradient_cases import CASES
from test_ops_on_device import run
from test_training_step import make_batch, make_model, step

from minicaps import Tensor, train
from minicaps.backend import DeviceError, choose_device, to_host
from minicaps.optim import Adam


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
    expected = run(function, arrays, cotangent)
    found = run(function, [gpu.put(a) for a in arrays], gpu.put(cotangent))
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


def test_the_trainer(gpu, tmp_path):
    options = ["--limit", "200", "--epochs", "1", "--quiet", "--device", "gpu"]
    assert train.main([*options, "--out", str(tmp_path / "run")]) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["device"].endswith("(CuPy)") and summary["test_samples"] == 2000
