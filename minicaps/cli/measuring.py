"""What figures depend on: processor, threads, BLAS, versions, load; and memory of a process."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_info

import minicaps
from minicaps.errors import ProcessError
from minicaps.threads import cores


def describe_machine():
    """What the figures depend on, and how busy the machine is before we begin."""
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
    """Most bytes of memory that this process has had, or None where the system does not tell."""
    if sys.platform == "darwin":
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:  # not ru_maxrss, which a process of Linux inherits from the one that started it
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return None


def in_a_process(module, *arguments):
    """Run `python -m module` in a process of its own; return what it prints.

    Raises ProcessError, with the last line of its message, if it fails.
    """
    paths = [str(Path(minicaps.__file__).parents[1]), os.environ.get("PYTHONPATH")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    line = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(line, capture_output=True, text=True, env=environment)
    if done.returncode:
        last = (done.stderr.splitlines() or ["no message"])[-1]
        raise ProcessError(f"python -m {module} has failed: {last}")
    return done.stdout


def _cpu_model():
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _blas():
    """Name and threads of NumPy's BLAS; threads None where it does not tell (Apple's)."""
    loaded = [library for library in threadpool_info() if library["user_api"] == "blas"]
    if not loaded:
        built = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        return {"blas": f"{built['name']} {built['version']}", "blas_threads": None}
    first = loaded[0]  # NumPy's: it is the first to be imported
    name = f"{first['internal_api']} {first['version']}"
    if "architecture" in first:
        name += f" ({first['architecture']})"  # which code it runs: it may not know the processor
    return {"blas": name, "blas_threads": first["num_threads"]}


def print_machine(report):
    """Print what `describe_machine` found, and the other side's versions if there is one."""
    print(f"{report['cpu']}, {report['cores']} cores, Python {report['python']}")
    ours = f"minicaps {report['minicaps']}, NumPy {report['numpy']}: {report['threads']} threads"
    print(f"{ours}; {report['blas']}: {report['blas_threads'] or 'unknown'} in each")
    if "torch" in report:
        print(f"torch {report['torch']}: {report['torch_threads']} threads")
    if report["load"] and report["load"] > 0.5 * report["cores"]:
        print(f"the machine is busy (load {report['load']:.1f}): trust ratios more than times")
    print()
