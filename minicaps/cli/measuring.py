"""Describe the machine (processor, threads, BLAS, versions, load) and measure peak memory."""

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_info

import minicaps
from minicaps.errors import ProcessError
from minicaps.threads import cores


def describe_machine():
    """Return the hardware, software versions and system load, which affect measured times."""
    return {
        "cpu": _cpu_model(),
        "cores": cores(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        "minicaps": minicaps.__version__,
        "numpy": np.__version__,
        **_blas(),
        "threads": cores(),
    }


def process_peak():
    """Return the peak memory of this process in bytes, or None if the system does not report it."""
    if sys.platform == "darwin":
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:  # not ru_maxrss, which a Linux process inherits from its parent
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return None


def in_a_process(module, *arguments):
    """Run `python -m module` in a separate process and return its standard output.

    Raises ProcessError with the last line of the error output if the process fails.
    """
    paths = [str(Path(minicaps.__file__).parents[1]), os.environ.get("PYTHONPATH")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    line = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(line, capture_output=True, text=True, env=environment)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if re.match(r"[\w.]+: ", line)]
        last = (lines or ["no message"])[-1]  # of a traceback: its error, without notes
        raise ProcessError(f"python -m {module} failed: {last}")
    return done.stdout


def _cpu_model():
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _blas():
    """Return the name and threads of NumPy's BLAS; threads is None if unknown (Apple's)."""
    loaded = [library for library in threadpool_info() if library["user_api"] == "blas"]
    if not loaded:
        built = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        return {"blas": f"{built['name']} {built['version']}", "blas_threads": None}
    first = loaded[0]  # NumPy's, which is imported first
    name = f"{first['internal_api']} {first['version']}"
    if "architecture" in first:
        name += f" ({first['architecture']})"  # its code path: BLAS may not know the processor
    return {"blas": name, "blas_threads": first["num_threads"]}


def print_machine(report):
    """Print the report of `describe_machine`, including the version of PyTorch if available."""
    print(f"{report['cpu']}, {report['cores']} cores, Python {report['python']}")
    ours = f"minicaps {report['minicaps']}, NumPy {report['numpy']}: {report['threads']} threads"
    print(f"{ours}; {report['blas']}: {report['blas_threads'] or 'unknown'} per thread")
    if "torch" in report:
        print(f"torch {report['torch']}: {report['torch_threads']} threads")
    if report["load"] and report["load"] > 0.5 * report["cores"]:
        print(f"the machine is busy (load {report['load']:.1f}): trust ratios more than times")
    print()
