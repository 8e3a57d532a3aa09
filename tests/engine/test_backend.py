"""The choice of the device, the errors if it cannot be used, and imports without side effects."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from minicaps.backend import array_module, choose_device, device_of, is_array, scatter_add, to_host
from minicaps.errors import DeviceError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def no_cupy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)  # makes `import cupy` fail


def _driver_too_old():
    raise RuntimeError("cudaErrorInsufficientDriver")


@pytest.fixture(params=[_driver_too_old, lambda: 0], ids=["no driver", "no device"])
def no_gpu(request, strict_cupy, monkeypatch):
    monkeypatch.setattr(strict_cupy.cuda.runtime, "getDeviceCount", request.param)


@pytest.fixture(params=["cpu", "gpu"])
def device(request, strict_cupy):
    return choose_device(request.param)


# --- Choosing ------------------------------------------------------------------------------------


def test_cpu_is_numpy():
    device = choose_device("cpu")
    assert (device.kind, device.xp) == ("cpu", np)


def test_gpu_is_cupy(strict_cupy):
    device = choose_device("gpu")
    assert (device.kind, device.xp) == ("gpu", strict_cupy)
    assert device.name == "strict stand-in (CuPy)"


def test_auto_takes_a_gpu_and_says_so(strict_cupy):
    device = choose_device("auto")
    assert (device.kind, device.reason) == ("gpu", "auto: GPU found")


def test_gpu_without_cupy_says_what_to_install(no_cupy):
    with pytest.raises(DeviceError, match=r'CuPy cannot be imported.*-e "\.\[cuda12\]"'):
        choose_device("gpu")


def test_gpu_without_a_gpu_says_so(no_gpu):
    with pytest.raises(DeviceError, match=r"CuPy finds no usable GPU.*--device cpu"):
        choose_device("gpu")


def test_auto_without_cupy_takes_the_cpu_and_says_why(no_cupy):
    device = choose_device("auto")
    assert (device.kind, device.xp) == ("cpu", np)
    assert device.reason == "auto: CuPy cannot be imported"


def test_auto_without_a_gpu_takes_the_cpu_and_says_why(no_gpu):
    device = choose_device("auto")
    assert (device.kind, device.xp) == ("cpu", np)
    assert device.reason == "auto: CuPy finds no usable GPU"


@pytest.mark.parametrize("name", ["cuda", "GPU", "", None])
def test_unknown_devices_are_refused(name):
    with pytest.raises(ValueError, match="choose auto, cpu or gpu"):
        choose_device(name)


# --- Arrays and their devices --------------------------------------------------------------------


def test_put_and_to_host_are_inverse(device):
    host = np.arange(6, dtype=np.float32).reshape(2, 3)
    array = device.put(host)
    assert isinstance(array, device.xp.ndarray)
    assert device_of(array) == device.kind
    assert device.put(array) is array
    np.testing.assert_array_equal(to_host(array), host)
    assert to_host(array).dtype == np.float32


def test_put_moves_from_gpu_to_cpu(strict_cupy):
    moved = choose_device("cpu").put(strict_cupy.ones(3))
    assert type(moved) is np.ndarray and moved.sum() == 3


def test_to_host_shares_on_the_cpu_and_copies_from_the_gpu(strict_cupy):
    host, array = np.zeros(2), strict_cupy.zeros(2)
    assert to_host(host) is host
    to_host(array)[0] = 1
    assert float(array.sum()) == 0


def test_array_module(strict_cupy):
    host, array = np.zeros(2), strict_cupy.zeros(2)
    assert array_module(host, 1.0) is np
    assert array_module() is np
    assert array_module(host, array) is strict_cupy


def test_array_module_without_cupy(no_cupy):
    assert array_module(np.zeros(2)) is np


def test_is_array(device):
    assert is_array(device.xp.zeros(()))
    assert not is_array(1.0) and not is_array(np.float32(1)) and not is_array([1.0])


def test_put_does_not_wait(strict_cupy):
    choose_device("gpu").put(np.zeros(2))
    assert strict_cupy.host_copies.total() == 1
    assert strict_cupy.host_syncs.total() == 0


def test_free_memory(strict_cupy, monkeypatch):
    monkeypatch.setattr(strict_cupy.cuda.runtime, "memGetInfo", lambda: (123, 456))
    assert choose_device("gpu").free_memory() == 123


def test_tf32_is_allowed_on_a_gpu_only(strict_cupy, monkeypatch):
    monkeypatch.setenv("CUPY_TF32", "")
    cpu, gpu = choose_device("cpu"), choose_device("gpu")
    for allowed, found in ((True, "1"), (False, "0")):
        gpu.allow_tf32(allowed)
        assert os.environ["CUPY_TF32"] == found
    cpu.allow_tf32(False)
    with pytest.raises(ValueError, match="TF32 requires a GPU; the device is the CPU"):
        cpu.allow_tf32(True)
    assert os.environ["CUPY_TF32"] == "0"


def test_synchronize_waits_for_the_device(strict_cupy):
    choose_device("cpu").synchronize()
    assert strict_cupy.host_syncs.total() == 0
    choose_device("gpu").synchronize()
    assert strict_cupy.host_syncs.total() == 1


# --- scatter_add ---------------------------------------------------------------------------------


def test_scatter_add_adds_repeated_indices(device):
    target = device.put(np.ones((3, 2), np.float32))
    values = device.put(np.array([[1, 2], [10, 20], [100, 200]], np.float32))
    scatter_add(target, device.put(np.array([0, 2, 0])), values)
    np.testing.assert_array_equal(to_host(target), [[102, 203], [1, 1], [11, 21]])
    assert target.dtype == np.float32


def test_scatter_add_takes_every_index_that_getitem_takes(device):
    rows, columns = device.put(np.array([0, 0, 1])), device.put(np.array([1, 1, 2]))
    mask = device.put(np.array([True, False]))
    for index in ((rows, columns), (slice(None), columns), mask, (0, slice(1, None)), ...):
        target = device.xp.zeros((2, 3))
        picked = target[index]
        scatter_add(target, index, device.xp.ones(picked.shape))
        assert float(target.sum()) == picked.size


# --- Importing -----------------------------------------------------------------------------------

IMPORT = """
import json, os, random, sys, warnings
import numpy as np

def settings():
    return {
        "geterr": np.geterr(),
        "geterrcall": np.geterrcall(),
        "printoptions": repr(np.get_printoptions()),
        "warnings": repr(warnings.filters),
        "numpy random": repr(np.random.get_state()),
        "random": repr(random.getstate()),
        "environment": dict(os.environ),
    }

before = settings()
import minicaps
from minicaps import backend
backend.choose_device("cpu")
backend.array_module(np.zeros(2))
after = settings()
print(json.dumps({
    "changed": [key for key in before if before[key] != after[key]],
    "loaded": [name for name in ("cupy", "matplotlib", "tqdm", "pooch") if name in sys.modules],
}))
"""


def test_importing_loads_no_heavy_module_and_changes_no_setting():
    run = subprocess.run(
        [sys.executable, "-c", IMPORT], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert json.loads(run.stdout) == {"changed": [], "loaded": []}
    assert run.stderr == ""
