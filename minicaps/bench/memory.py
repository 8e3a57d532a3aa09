"""Peak memory of a step, each measured in a process of its own: in one that has done other work,
what is free but kept would hide it.
"""

import sys

from minicaps.bench.cases import Case
from minicaps.cli.allocator import keep_memory
from minicaps.cli.measuring import in_a_process, process_peak
from minicaps.errors import ProcessError
from minicaps.threads import one_blas_thread

STEPS = 3  # after two the optimiser has its state, and the allocator its habits


def peak_memory(case, side):
    """Bytes at the peak of a few steps, with the network, above the process without them.

    side: "minicaps", or a name that `twins` gives its step functions. None where the system
    does not tell. RuntimeError if the steps fail.
    """
    try:
        said = in_a_process("minicaps.bench.memory", side, *case)
    except ProcessError as error:
        raise RuntimeError(f"the memory of {side} could not be measured: {error}") from None
    return int(said) if said.strip() else None


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


if __name__ == "__main__":
    main(sys.argv[1:])
