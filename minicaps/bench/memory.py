"""Measure the peak memory of a step in a separate process.

In a process that has already done other work, memory retained by the allocator would hide the peak.
"""

import sys

from minicaps.bench.cases import Case
from minicaps.cli.allocator import keep_memory
from minicaps.cli.blas import one_blas_thread
from minicaps.cli.measuring import in_a_process, process_peak
from minicaps.errors import ProcessError

STEPS = 3  # after two, optimizer and allocator have reached a steady state


def peak_memory(case, side):
    """Return the peak memory that the network and a few steps add to a process, in bytes.

    side: "minicaps", "onnxruntime", or the name of a step function in `twins`. The result is None
    if the operating system does not report memory usage. Raises RuntimeError if the steps fail.
    """
    try:
        said = in_a_process("minicaps.bench.memory", side, *case)
    except ProcessError as error:
        raise RuntimeError(f"the memory of {side} could not be measured: {error}") from None
    return int(said) if said.strip() else None


def main(arguments):
    """Print the peak memory of a case in bytes.

    arguments: side, kind, preset and batch.
    """
    side, kind, preset, batch = arguments
    case = Case(kind, preset, int(batch))
    if side == "minicaps":
        keep_memory()
        with one_blas_thread():
            _measure(case, Case.step)
    elif side == "onnxruntime":
        from minicaps.bench import onnx_peer

        _measure(case, lambda case, model, images, labels: onnx_peer.infer(model, images))
    else:
        from minicaps.bench import twins

        _measure(case, twins.maker(side))


def _measure(case, make_step):
    """Print the increase in the peak memory of this process over a few steps, in bytes."""
    before = process_peak()
    step = make_step(case, *case.material())
    for _ in range(STEPS):
        step()
    if before is not None:
        print(process_peak() - before)


if __name__ == "__main__":
    main(sys.argv[1:])
