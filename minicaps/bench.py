"""`python -m minicaps.bench`: time a training step of CapsNet, or routings, on the CPU.

A step is forward, backward and Adam on one batch of random images, with margin and reconstruction
loss; a routing is forward and backward to all its inputs. Either can be timed against PyTorch;
alone, the routings are a table of how they grow with the problem. Those who are compared take
turns in one run, so that a busy or hot machine slows all alike, and medians are reported.
"""

import argparse
import importlib
import json
import sys
from pathlib import Path

import numpy as np

from minicaps import Tensor, bench_routing, models, ops
from minicaps.allocator import keep_memory
from minicaps.bench_timing import contest, describe_machine, print_machine, print_results
from minicaps.optim import Adam

IMAGE, CLASSES = (1, 28, 28), 10


def main(arguments=None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.what == "routing" and options.preset:
        parser.error("--preset has no effect with --what routing: leave it out")
    if options.against == "torch":
        try:
            importlib.import_module("torch")
        except ImportError as error:
            install = 'install it with: pip install "minicaps[torch]"'
            print(f"minicaps.bench: PyTorch is missing ({error}); {install}", file=sys.stderr)
            return 2
    about = {**describe_machine(), "what": options.what}
    keep_memory()
    try:
        if options.what == "step":
            report = compare(options, about)
        elif options.against:
            report = bench_routing.compare(options, about)
        else:
            report = bench_routing.grow(options, about)
    except KeyboardInterrupt:
        print("\nminicaps.bench: interrupted", file=sys.stderr)
        return 130
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m minicaps.bench",
        description="Time a training step (forward, backward, Adam) of CapsNet, or routings"
        " (forward, backward), on the CPU.",
    )
    parser.add_argument(
        "--what", choices=["step", "routing"], default="step",
        help="a training step (default), or every routing: alone, its time and memory at a base"
        " size and with twice the children, parents and iterations",
    )  # fmt: skip
    parser.add_argument(
        "--against", choices=["torch"],
        help="take turns with the same in PyTorch: the fastest of a few ways to write it,"
        " and the popular one; routings: EM and agreement as in the layers of the networks",
    )  # fmt: skip
    presets = tuple(models.CAPSNET_PRESETS)
    parser.add_argument("--preset", choices=presets, help="of CapsNet, for a step (default: paper)")
    parser.add_argument(
        "--batch", type=_count, metavar="N",
        help="images a step, samples of a routing (default: 128; EM against torch:"
        f" {bench_routing.EM_BATCH} images)",
    )  # fmt: skip
    parser.add_argument(
        "--repeats", type=_count, default=5, metavar="N", help="timed runs of each (default: 5)"
    )
    parser.add_argument("--json", type=_file, metavar="FILE", help="write all that was measured")
    return parser


def _count(text):
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"a number from 1 is wanted, not {text!r}")
    return int(text)


def _file(text):
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"cannot write {text!r}: a folder, or in none that exists")
    return path


def compare(options, about):
    """Time a training step, print it, and return what was measured as a dictionary for JSON."""
    preset, batch = options.preset or "paper", options.batch or 128
    rng = np.random.default_rng(0)
    images = rng.random((batch, *IMAGE), dtype=np.float32)
    labels = rng.integers(0, CLASSES, batch)
    model = models.build("capsnet", IMAGE, CLASSES, preset=preset)
    about = {**about, "preset": preset, "batch": batch, "image": IMAGE}
    report = {**about, "parameters": model.number_of_parameters()}
    variants, popular = {}, {}
    if options.against == "torch":
        from minicaps import bench_torch

        report |= bench_torch.versions()
        variants = bench_torch.training_steps(bench_torch.VARIANTS, model, images, labels)
        popular = bench_torch.training_steps(bench_torch.POPULAR, model, images, labels)
    size = "×".join(map(str, IMAGE))
    print(
        f"One training step of CapsNet, preset {preset}, {report['parameters']:,} parameters,"
        f" {batch} images of {size}, float32"
    )
    print_machine(report)
    step = training_step(model, images, labels)
    report |= contest(step, variants, popular, batch, options.repeats)
    print_results(report)
    return report


def training_step(model, images, labels):
    """Return a function that trains `model` one step on the batch and returns the loss before."""
    optimizer = Adam(model.named_parameters())

    def step():
        model.zero_grad()
        routed = model(Tensor(images))
        drawn = model.reconstruct(routed.poses, labels)
        loss = ops.margin_loss(routed.activations, labels) + ops.reconstruction_loss(drawn, images)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


if __name__ == "__main__":
    sys.exit(main())
