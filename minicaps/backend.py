"""The NumPy/CuPy switch: one place that knows where arrays live.

Code elsewhere asks `array_module(x)` for the module `xp` of an array and calls `xp.exp(x)`:
the array decides, there is no global device. CuPy is imported by `choose_device` alone.
Random numbers are drawn by NumPy and copied (`Device.put`): one seed, one stream, any device.
"""

import os
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from minicaps.errors import DeviceError

Array = Any  # a NumPy or CuPy array: CuPy brings no types, and need not be installed


@dataclass(frozen=True)
class Device:
    """Where arrays are made: `xp` is numpy or cupy, `name` says which machine part that is."""

    kind: str  # "cpu" or "gpu"
    xp: ModuleType
    name: str
    reason: str  # one line: why this device was chosen

    def put(self, array: Array) -> Array:
        """Copy `array` (host or device) to this device; no copy when it is there already.

        A copy to a GPU does not wait for it: CuPy passes it through page-locked memory of its own.
        """
        return self.xp.asarray(to_host(array) if self.kind == "cpu" else array)

    def synchronize(self) -> None:
        """Wait until the device has done all its work (for timing)."""
        if self.kind == "gpu":
            self.xp.cuda.get_current_stream().synchronize()

    def free_memory(self) -> int:
        """Return how many bytes of memory are free on a GPU."""
        return self.xp.cuda.runtime.memGetInfo()[0]

    def allow_tf32(self, allowed: bool) -> None:
        """Let a GPU round the factors of float32 matrix products to TF32 (11 bits), or forbid it.

        CuPy asks once in a process, before its first product. ValueError for allowing a CPU.
        """
        if self.kind == "gpu":
            os.environ["CUPY_TF32"] = str(int(allowed))
        elif allowed:
            raise ValueError(f"TF32 is for GPUs, and this is the {self.name} ({self.reason})")


def array_module(*arrays: Array) -> ModuleType:
    """Return cupy if any of `arrays` is a CuPy array, else numpy. Never imports cupy."""
    cupy = sys.modules.get("cupy")
    if cupy is not None and any(isinstance(a, cupy.ndarray) for a in arrays):
        return cupy
    return np


def device_of(array: Array) -> str:
    """Return "cpu" or "gpu": where `array` lives."""
    return "cpu" if array_module(array) is np else "gpu"


def is_array(value: Any) -> bool:
    """Tell whether `value` is an array of either module (scalars are not arrays)."""
    return isinstance(value, np.ndarray) or array_module(value) is not np


def choose_device(name: str = "auto") -> Device:
    """Return the `Device` called `name`: "cpu", "gpu" or "auto" (a GPU if one can be used).

    Raises DeviceError for "gpu" when CuPy or a GPU is missing (the message says which of the
    two, and what to install), ValueError for another name.
    """
    if name not in ("auto", "cpu", "gpu"):
        raise ValueError(f"unknown device {name!r}: choose auto, cpu or gpu")
    if name == "cpu":
        return Device("cpu", np, "CPU (NumPy)", "chosen")
    try:
        cupy = _usable_cupy()
    except DeviceError as error:
        if name == "gpu":
            raise
        reason = str(error).partition(":")[0]
        return Device("cpu", np, "CPU (NumPy)", f"auto: {reason}")
    card = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.runtime.getDevice())["name"]
    card = card.decode() if isinstance(card, bytes) else card
    return Device("gpu", cupy, f"{card} (CuPy)", "chosen" if name == "gpu" else "auto: GPU found")


def _usable_cupy():
    """Import CuPy and ask it for a GPU; raise DeviceError naming what is missing."""
    try:
        import cupy
    except Exception as error:  # a broken CUDA set-up raises more than ImportError
        raise DeviceError(
            f"CuPy cannot be imported: {error}. "
            'Install it for your CUDA version: pip install "minicaps[cuda12]" or "minicaps[cuda13]"'
        ) from error
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:
        raise DeviceError(
            f"CuPy finds no usable GPU: {error}. "
            "Check the NVIDIA driver with nvidia-smi, or use --device cpu"
        ) from error
    if count == 0:
        raise DeviceError("CuPy finds no usable GPU: it counts 0 devices. Use --device cpu")
    return cupy


def to_host(array: Array) -> np.ndarray:
    """Return `array` as a NumPy array (a copy if it lives on a GPU, else the array itself)."""
    return np.asarray(array) if array_module(array) is np else array.get()


def scatter_add(target: Array, index: Any, values: Array) -> None:
    """target[index] += values in place, where repeated indices add up (`+=` keeps one)."""
    array_module(target).add.at(target, index, values)
