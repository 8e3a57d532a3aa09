"""`python -m minicaps.bench`: benchmark CapsNet, routing and scaling on the CPU.

For CapsNet, the command measures training and inference times on random images or profiles
individual ops. For routing, it measures how time and memory grow with the problem size. Both
benchmarks can include a comparison with PyTorch, and inference one with ONNX Runtime. All
competitors take turns within a single run, so a busy or hot machine affects them equally. The
reported times are medians. For scaling, the command measures training on several processes of this
machine and models training on many machines.
"""

import argparse
import importlib
import json
import sys
from functools import partial
from itertools import product
from pathlib import Path

from minicaps import models
from minicaps.bench import network, profile, routing, scaling
from minicaps.bench.cases import KINDS, Case
from minicaps.cli.command import fail, guarded, number, start
from minicaps.cli.measuring import describe_machine, print_machine
from minicaps.storage import replacing, results_file
from minicaps.threads import cores

NAME = "minicaps.bench"
WHAT = (*KINDS, "routing", "scaling")
PEERS = {"torch": "PyTorch", "onnx": "ONNX Runtime"}  # extras in pyproject.toml, and their names
EXAMPLES = """examples:
  python -m minicaps.bench                                  CapsNet of the paper, 128 images
  python -m minicaps.bench --against torch                  the same, against PyTorch
  python -m minicaps.bench --against torch onnx             the same, against ONNX Runtime too
  python -m minicaps.bench --preset small --batch 32 128    another network, two batch sizes
  python -m minicaps.bench --what train --profile           time spent in each op of a step
  python -m minicaps.bench --what routing --json FILE       routing at growing sizes
  python -m minicaps.bench --what scaling --figure FILE     training on more and more ranks
"""


def main(arguments=None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    if problem := _contradiction(options):
        parser.error(problem)
    return guarded(NAME, partial(_run, options), no_memory="try a smaller --batch")


def _run(options):
    for name in ("json", "figure"):
        if file := getattr(options, name):
            results_file(file, f"choose another --{name}")
    report = describe_machine()
    for peer in options.against:
        try:
            report |= _describe(peer)
        except ImportError as error:
            install = f'install it with: pip install -e ".[{peer}]"'
            return fail(NAME, f"{PEERS[peer]} is missing ({error}); {install}", code=2)
    print_machine(report)
    report |= _measure(options)
    if options.json:
        with replacing(options.json) as file:
            file.write(json.dumps(report, indent=1).encode("ascii") + b"\n")


def _describe(peer):
    """Return the version and number of threads of a peer; raise ImportError if it is missing."""
    if peer == "torch":
        torch = importlib.import_module("torch")
        return {"torch": torch.__version__, "torch_threads": torch.get_num_threads()}
    importlib.import_module("onnx")  # makes the graph
    runtime = importlib.import_module("onnxruntime")
    return {"onnxruntime": runtime.__version__, "onnxruntime_threads": cores()}


def _measure(options):
    """Run the benchmarks selected by the options, print the results, and return them."""
    kinds = [kind for kind in options.what if kind in KINDS]
    wanted = product(options.preset or ["paper"], kinds, options.batch or [128])
    cases = [Case(kind, preset, batch) for preset, kind, batch in wanted]
    if options.profile:
        return {"profiles": [profile.show(case, options.repeats) for case in cases]}
    report = {}
    if cases:
        report["network"] = network.compare(cases, options.against, options.repeats)
    if "routing" in options.what:
        measure = routing.compare if "torch" in options.against else routing.grow
        batches = options.batch or [None]
        report["routings"] = [measure(batch, options.repeats) for batch in batches]
    if "scaling" in options.what:
        presets = options.preset or ["paper", "small"]
        report["scaling"] = [
            scaling.measure(presets, batch, options.repeats) for batch in options.batch or [128]
        ]
        if options.figure:
            scaling.draw(report["scaling"][0], options.figure)
    return report


def _contradiction(options):
    """Return an error message if two options contradict each other, and None otherwise."""
    if options.profile and options.against:
        return "--profile shows only the ops of minicaps: leave --against out"
    if options.profile and not set(KINDS).issuperset(options.what):
        return "--profile shows only the ops of CapsNet: use --what train or --what infer"
    if "onnx" in options.against and "infer" not in options.what:
        return "--against onnx only joins in inference: use --what infer"
    if options.what == ["routing"] and options.preset:
        return "--preset has no effect with --what routing: leave it out"
    if options.what == ["scaling"] and options.against:
        return "--against has no effect with --what scaling: leave it out"
    if options.figure and "scaling" not in options.what:
        return "--figure draws the scaling: add --what scaling"
    if options.figure and options.batch and len(options.batch) > 1:
        return "--figure draws the scaling for one --batch"
    return None


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m minicaps.bench",
        description="Benchmark CapsNet, routing or scaling on the CPU: time and peak memory.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_argument_group("what to time")
    what.add_argument(
        "--what", nargs="+", choices=WHAT, default=list(KINDS), metavar="WHAT",
        help="train (forward, backward, Adam), infer (forward to the lengths), routing (all"
        " routing algorithms, forward and backward, at a base size and with twice the batch,"
        " children, parents or iterations), scaling (training on as many ranks as there are cores,"
        " and a model of up to 1,024 machines); one or more (default: train infer)",
    )  # fmt: skip
    what.add_argument(
        "--preset", nargs="+", choices=models.CAPSNET_PRESETS, metavar="PRESET",
        help=f"CapsNet presets: {', '.join(models.CAPSNET_PRESETS)}; one or more (default: paper;"
        " paper and small for scaling)",
    )  # fmt: skip
    what.add_argument(
        "--batch", nargs="+", type=number(int, 1), metavar="N",
        help="images per step, or samples per routing; one or more (default: 128;"
        f" {routing.LAYER_BATCH} for convolutional capsules and EM against torch)",
    )  # fmt: skip
    how = parser.add_argument_group("how")
    how.add_argument(
        "--against", nargs="+", choices=PEERS, default=[], metavar="PEER",
        help="take turns with torch (PyTorch: the fastest of several equivalent implementations,"
        " the popular one and, for CapsNet, the fastest one compiled; with routing, also compare"
        " the capsule layers), onnx (ONNX Runtime, in inference only) or both",
    )  # fmt: skip
    how.add_argument(
        "--profile", action="store_true",
        help="show instead the time that CapsNet spends in each op, forward and backward",
    )  # fmt: skip
    text = "timed runs of each competitor (default: 5)"
    how.add_argument("--repeats", type=number(int, 1), default=5, metavar="N", help=text)
    how.add_argument("--json", type=Path, metavar="FILE", help="write all measurements to FILE")
    how.add_argument(
        "--figure", type=Path, metavar="FILE", help="draw the modeled scaling to FILE (PNG)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(start(main))
