"""Time CapsNet, alone or against PyTorch and ONNX Runtime."""

import sys
from functools import partial

from tqdm import tqdm

from minicaps.bench import count
from minicaps.bench.cases import IMAGE, KINDS
from minicaps.bench.memory import peak_memory
from minicaps.bench.timing import contest, print_heads, print_results
from minicaps.threads import matmul

OURS, COMPILED = "minicaps", "torch.compile of the same"
ALONE = "matrix products alone"


def compare(cases, against, repeats):
    """Time all cases, print the results, and return them as a dictionary.

    against: list of "torch" and "onnx", which joins in inference only.
    """
    print(f"CapsNet, float32, images of {'×'.join(map(str, IMAGE))}")
    print("GFLOP/s: operations of direct convolution, linear layers and votes, divided by the time")
    print(f"floor: time of {ALONE} (those of direct convolution), divided by the time")
    print("MiB: peak memory of a step, measured in a separate process\n")
    print_heads()
    measured = []
    for case in cases:
        measured.append(_measure(case, against, repeats))
        _print_case(measured[-1])
    print()
    return {"image": IMAGE, "cases": measured}


def _measure(case, against, repeats):
    """Time all competitors in turn, and return the case, the results and the derived columns."""
    material = case.material()
    products = count.products(material[0], case.batch, case.train)
    direct = count.convolutions(products)
    racers, rivals, join, compiled = {OURS: case.step(*material)}, {}, None, {}
    alone = {ALONE: count.floor_step(direct, case.train, matmul)}
    if "torch" in against:
        from minicaps.bench import twins

        racers |= twins.steps(twins.POPULAR, case, material)
        rivals = twins.steps(twins.VARIANTS, case, material)
        join = partial(_compile, twins.compiled, case, material, compiled)
        theirs = count.floor_step(direct, case.train, twins.multiply)
        alone[f"{ALONE}, torch"] = theirs
    if "onnx" in against and not case.train:
        from minicaps.bench import onnx_peer

        racers[onnx_peer.NAME] = infer = onnx_peer.infer(*material[:2])
        onnx_peer.check(infer(), racers[OURS]())
    found = contest(racers | alone, rivals, repeats, join)
    networks = [row for row in found["results"] if row["name"] not in alone]
    parts = [row for row in found["results"] if row["name"] in alone]
    operations = count.operations(products, case.train)
    add_columns(networks, parts, case.batch, operations, count.operations(direct, case.train))
    _add_memory(case, [row for row in networks if row["name"] != COMPILED])
    about = {"parameters": material[0].number_of_parameters(), "operations": operations}
    return {**case._asdict(), **about, **compiled, **found}


def add_columns(networks, parts, images, operations, least):
    """Add columns derived from the times to the rows of `networks` and `parts`.

    parts: rows of the matrix products alone. operations, least: number of operations of a network
    and of the matrix products.
    """
    floor = min(row["median"] for row in parts)
    for row in networks:
        row["images_per_second"] = 1000 * images / row["median"]
        row["gflops"] = operations / row["median"] / 1e6
        row["floor"] = floor / row["median"]
    for row in parts:
        row["gflops"] = least / row["median"] / 1e6
        row["floor"] = floor / row["median"]


def _compile(compiled, case, material, report, fastest):
    """Compile the fastest twin, and add the compilation time or the error message to `report`.

    Returns {name: step function}, which is empty if the compilation fails.
    """
    try:
        step, report["compile_seconds"] = compiled(fastest, case, material)
    except Exception as error:  # its type depends on what is missing and on the version
        report["compile_error"] = f"{type(error).__name__}: {error}".strip().splitlines()[0]
        return {}
    return {COMPILED: step}


def _add_memory(case, rows):
    """Measure the peak memory for each row of the table.

    Compiled code is excluded, because the result would include the memory of the compiler.
    """
    for row in tqdm(rows, desc="memory", unit="process", leave=False, disable=None):
        try:
            peak = peak_memory(case, row["name"])
        except RuntimeError as error:
            print(f"minicaps.bench: {error}", file=sys.stderr)
            continue
        if peak is not None:
            row["mebibytes"] = peak / 2**20


def _print_case(found):
    kind, preset, batch = KINDS[found["kind"]], found["preset"], found["batch"]
    size = f"{found['parameters']:,} parameters, {found['operations'] / 1e9:,.1f} GFLOP"
    print(f"\n{kind} of {preset} ({size}), {batch} images")
    if "compile_seconds" in found:
        print(f"torch.compile took {found['compile_seconds']:.1f} s, not included below")
    if "compile_error" in found:
        print(f"torch.compile is left out: {found['compile_error']}")
    print_results(found)
