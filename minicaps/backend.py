"""Selection of NumPy or CuPy; no other module needs to know where arrays are stored.

Other modules obtain the array module with `xp = array_module(x)` and then call, for example,
`xp.exp(x)`. Since the array determines the module, there is no global device. Only `choose_device`
imports CuPy. Random numbers are drawn with NumPy and copied (`Device.put`), so they are the same on
every device.
"""

import os
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from minicaps import ranks
from minicaps.errors import DeviceError

Array = Any  # a NumPy or CuPy array; CuPy has no type hints and need not be installed


@dataclass(frozen=True)
class Device:
    """A device that stores arrays; `xp` is numpy or cupy, and `name` describes the hardware."""

    kind: str  # "cpu" or "gpu"
    xp: ModuleType
    name: str
    reason: str  # why this device was chosen, in one line

    def put(self, array: Array) -> Array:
        """Copy `array` from the host or a GPU to this device unless it is already there.

        Copying to a GPU does not block, because CuPy uses its own page-locked memory.
        """
        return self.xp.asarray(to_host(array) if self.kind == "cpu" else array)

    def synchronize(self) -> None:
        """Wait until the device has finished all pending work, as required for timing."""
        if self.kind == "gpu":
            self.xp.cuda.get_current_stream().synchronize()

    def free_memory(self) -> int:
        """Return the amount of free GPU memory in bytes."""
        return self.xp.cuda.runtime.memGetInfo()[0]

    def allow_tf32(self, allowed: bool) -> None:
        """Set whether a GPU may round the factors of float32 matrix products to TF32 (11 bits).

        CuPy reads this setting only once per process, before its first matrix product. Raises
        ValueError if `allowed` is True on the CPU.
        """
        if self.kind == "gpu":
            os.environ["CUPY_TF32"] = str(int(allowed))
        elif allowed:
            raise ValueError(f"TF32 requires a GPU; the device is the {self.name} ({self.reason})")


def array_module(*arrays: Array) -> ModuleType:
    """Return cupy if any of `arrays` is a CuPy array, otherwise numpy; never import cupy."""
    cupy = sys.modules.get("cupy")
    if cupy is not None and any(isinstance(a, cupy.ndarray) for a in arrays):
        return cupy
    return np


def device_of(array: Array) -> str:
    """Return the device of `array` as "cpu" or "gpu"."""
    return "cpu" if array_module(array) is np else "gpu"


def is_array(value: Any) -> bool:
    """Return True if `value` is a NumPy or CuPy array (scalars are not arrays)."""
    return isinstance(value, np.ndarray) or array_module(value) is not np


def as_array(value: Array) -> Array:
    """Return `value` as a plain array rather than a matrix or one of NumPy's scalars."""
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError("a masked array would lose its mask: fill it, as in x.filled(0)")
    return value if array_module(value) is not np else np.asarray(value)


def choose_device(name: str = "auto") -> Device:
    """Return the `Device` called `name`: "cpu", "gpu" or "auto" (a GPU if one is usable).

    If a machine has several ranks, each takes the GPU of its number among them; if there are fewer
    GPUs, the ranks share them.

    Raises DeviceError if `name` is "gpu" but CuPy or a GPU is missing (the message says which of
    the two, and what to install), and ValueError if the name is unknown.
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
    number, several, _ = ranks.local()
    if several > 1:
        cupy.cuda.runtime.setDevice(number % cupy.cuda.runtime.getDeviceCount())
    card = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.runtime.getDevice())["name"]
    card = card.decode() if isinstance(card, bytes) else card
    return Device("gpu", cupy, f"{card} (CuPy)", "chosen" if name == "gpu" else "auto: GPU found")


def _usable_cupy():
    """Import CuPy and check that it finds a GPU; raise DeviceError if CuPy or a GPU is missing."""
    try:
        import cupy
    except Exception as error:  # a broken CUDA installation can raise other errors
        raise DeviceError(
            f"CuPy cannot be imported: {error}. "
            'Install it for your CUDA version: pip install -e ".[cuda12]" or ".[cuda13]"'
        ) from error
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:
        raise DeviceError(
            f"CuPy finds no usable GPU: {error}. "
            "Check the NVIDIA driver with nvidia-smi, or use --device cpu"
        ) from error
    if count == 0:
        raise DeviceError("CuPy finds no usable GPU: it reports 0 devices. Use --device cpu")
    return cupy


def to_host(array: Array) -> np.ndarray:
    """Return `array` as a NumPy array (a copy if it is on a GPU, otherwise the array itself)."""
    return np.asarray(array) if array_module(array) is np else array.get()


def scatter_add(target: Array, index: Any, values: Array) -> None:
    """Add `values` to `target[index]` in place; unlike `+=`, accumulate over repeated indices."""
    array_module(target).add.at(target, index, values)
