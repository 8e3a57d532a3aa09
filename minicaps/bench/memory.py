"""Measure the peak memory of a step in a separate process.

In a process that has done other work, memory that was freed but kept would hide the peak.
"""

import sys

from minicaps.bench.cases import Case
from minicaps.cli.allocator import keep_memory
from minicaps.cli.measuring import in_a_process, process_peak
from minicaps.errors import ProcessError
from minicaps.threads import one_blas_thread

STEPS = 3  # after two, optimizer and allocator have reached a steady state


def peak_memory(case, side):
    """Return the peak memory of the network and a few steps, in bytes above the process's baseline.

    side: "minicaps", or the name of a step function in `twins`. The result is None if the system
    does not report memory. Raises RuntimeError if the steps fail.
    """
    try:
        said = in_a_process("minicaps.bench.memory", side, *case)
    except ProcessError as error:
        raise RuntimeError(f"the memory of {side} could not be measured: {error}") from None
    return int(said) if said.strip() else None


def main(arguments):
    """Print the peak memory of a case in bytes. arguments: side, kind, preset and batch."""
    side, kind, preset, batch = arguments
    case = Case(kind, preset, int(batch))
    if side == "minicaps":
        keep_memory()
        with one_blas_thread():
            _measure(case, Case.step)
    else:
        from minicaps.bench import twins

        _measure(case, twins.maker(side))


def _measure(case, make_step):
    """Print by how many bytes a few steps raise the peak memory of this process."""
    before = process_peak()
    step = make_step(case, *case.material())
    for _ in range(STEPS):
        step()
    if before is not None:
        print(process_peak() - before)


if __name__ == "__main__":
    main(sys.argv[1:])
