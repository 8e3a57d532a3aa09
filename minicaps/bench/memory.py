"""Peak memory of a step, each measured in a process of its own: in one that has done other work,
what is free but kept would hide it.
"""

import os
import subprocess
import sys
from pathlib import Path

import minicaps
from minicaps.allocator import keep_memory
from minicaps.bench.steps import Case
from minicaps.threads import one_blas_thread

STEPS = 3  # after two the optimiser has its state, and the allocator its habits


def peak_memory(case, side):
    """Bytes at the peak of a few steps, with the network, above the process without them.

    side: "minicaps", or a name that `twins` gives its step functions. None where the system
    does not tell. RuntimeError if the steps fail.
    """
    command = [sys.executable, "-m", "minicaps.bench.memory", side, *map(str, case)]
    paths = [str(Path(minicaps.__file__).parents[1]), os.environ.get("PYTHONPATH")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        last = (done.stderr.splitlines() or ["no message"])[-1]
        raise RuntimeError(f"the memory of {side} could not be measured: {last}")
    return int(done.stdout) if done.stdout.strip() else None


def main(arguments):
    """Print the bytes of a step: side, kind, preset and batch are the arguments."""
    side, kind, preset, batch = arguments
    case = Case(kind, preset, int(batch))
    if side == "minicaps":
        keep_memory()
        one_blas_thread()
        make_step = Case.step
    else:
        from minicaps.bench import twins

        make_step = twins.maker(side)
    before = process_peak()
    step = make_step(case, *case.material())
    for _ in range(STEPS):
        step()
    if before is not None:
        print(process_peak() - before)


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


if __name__ == "__main__":
    main(sys.argv[1:])
