"""Describe the machine (processor, threads, BLAS, versions, load) and measure peak memory."""

import os
import platform
import re
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_info

import minicaps
from minicaps import ranks
from minicaps.errors import ProcessError
from minicaps.threads import all_cores, cores


def _ulimits():
    """Return the limits of `ulimit -v` and `-d` in bytes, where they are set."""
    try:
        import resource
    except ImportError:  # Windows
        return []
    limits = (resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA))
    return [limit for limit in limits if limit != resource.RLIM_INFINITY]


ULIMITS = _ulimits()  # before `memory_limit` lowers one of them


def describe_machine():
    """Return the hardware, software versions and system load, which affect measured times."""
    return {
        "cpu": _cpu_model(),
        "cores": all_cores(),
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


def whole_memory():
    """Return the memory in bytes that this process may use in all, or None if it is unknown.

    The limit is the memory of the machine, that of the container, or that of `ulimit -v` or `-d`
    when the process began.
    """
    known = list(ULIMITS)
    with suppress(AttributeError, OSError, ValueError):  # not on Windows
        known.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(OSError, ValueError):  # no container, or no limit
        known.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(known, default=None)


def available_memory():
    """Return the memory in bytes that this process may still use, or None if it is unknown.

    The limit is the free memory of the machine, that of the container, or that of `ulimit -v`.
    """
    try:
        import resource

        lines = Path("/proc/meminfo").read_text().splitlines()
        known = [1024 * int(x.split()[1]) for x in lines if x.startswith("MemAvailable")]
        most, _ = resource.getrlimit(resource.RLIMIT_AS)
        if most != resource.RLIM_INFINITY:
            known.append(most - address_space())
    except (ImportError, OSError):  # not Linux
        return None
    with suppress(OSError, ValueError):  # no container, or no limit
        group = Path("/sys/fs/cgroup")
        used = int((group / "memory.current").read_text())
        known.append(int((group / "memory.max").read_text()) - used)
    return max(0, min(known)) if known else None


def address_space():
    """Return the size of this process's address space in bytes; OSError if it is unknown."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def memory_limit(more):
    """Let allocations in this block fail with MemoryError once they need `more` bytes in total.

    If `more` is None, there is no limit.
    """
    if more is None:
        yield
        return
    import resource

    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (address_space() + int(more), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def in_a_process(module, *arguments):
    """Run `python -m module` in a separate process and return its standard output.

    The process ends when this one does. Raises ProcessError with the last line of the error output
    if the process fails.
    """
    paths = [str(Path(minicaps.__file__).parents[1]), os.environ.get("PYTHONPATH")]
    environment = ranks.without_launcher(os.environ)  # the process is no rank
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    line = [sys.executable, "-m", "minicaps.cli.child", module, *map(str, arguments)]
    read, write = os.pipe()
    try:
        done = subprocess.run(line, stdin=read, capture_output=True, text=True, env=environment)
    finally:
        os.close(read)
        os.close(write)
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
    """Print the report of `describe_machine`, including versions of other engines in it."""
    print(f"{report['cpu']}, {report['cores']} cores, Python {report['python']}")
    ours = f"minicaps {report['minicaps']}, NumPy {report['numpy']}: {report['threads']} threads"
    print(f"{ours}; {report['blas']}: {report['blas_threads'] or 'unknown'} per thread")
    for engine in ("torch", "onnxruntime"):
        if engine in report:
            print(f"{engine} {report[engine]}: {report[f'{engine}_threads']} threads")
    if report["load"] and report["load"] > 0.5 * report["cores"]:
        print(f"the machine is busy (load {report['load']:.1f}): trust ratios more than times")
    print()
