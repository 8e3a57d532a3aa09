"""`python -m minicaps.export RUN --to FORMAT`: write a trained network for other programs."""

import importlib
import sys
from functools import partial
from pathlib import Path

from minicaps.cli.command import fail, guarded, parser_for_run, start
from minicaps.errors import CheckpointError, escaped
from minicaps.export.description import description_of
from minicaps.runs import tensors_file
from minicaps.runs.run import open_run
from minicaps.storage import results_file

NAME = "minicaps.export"
PACKAGES = {"onnx": ("onnx", "onnxruntime"), "safetensors": ("safetensors",)}  # also suffixes
ABOUT = """\
Write a trained network for programs without minicaps: as an ONNX graph, which
runtimes for servers, phones and browsers execute, or as arrays with names in
the safetensors format, which minicaps.runs.load_model loads, too.
"""
EXAMPLES = """\
examples (the first line creates a run in about a minute):
  python -m minicaps.train --out runs/first
  python -m minicaps.export runs/first --to onnx
  python -m minicaps.export runs/first --to safetensors --out digits.safetensors
"""


def main(arguments=None):
    """Run the command and return the exit code.

    The exit code is 0 on success, 1 on failure, 2 on usage errors, and 130 on Ctrl-C.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    suffix = f".{options.to}"
    if options.out and options.out.suffix.lower() != suffix:
        parser.error(f"--out must end in {suffix} for --to {options.to}, not {options.out}")
    no_memory = "close other programs, or export a network for smaller images"
    return guarded(NAME, partial(_run, options), no_memory=no_memory)


def _parser():
    parser = parser_for_run(NAME, ABOUT, EXAMPLES)
    text = "format of the file: onnx, safetensors"
    parser.add_argument("--to", choices=PACKAGES, required=True, metavar="FORMAT", help=text)
    text = "file to write (default: best.FORMAT in the run folder); an existing file is replaced"
    parser.add_argument("--out", metavar="FILE", type=Path, help=text)
    return parser


def _run(options):
    try:
        for package in PACKAGES[options.to]:
            importlib.import_module(package)
    except ImportError as error:
        install = f"install it with: pip install {' '.join(PACKAGES[options.to])}"
        return fail(NAME, f"--to {options.to} needs the package {package} ({error}); {install}")
    run = open_run(options.run, "cpu")
    out = options.out or run.path.with_suffix(f".{options.to}")
    if out.exists() and out.samefile(run.path):
        raise CheckpointError(f"{out} is the network itself: choose another --out")
    results_file(out)
    c, h, w = run.input_shape
    model, size = run.model.config, run.model.number_of_parameters()
    print(f"Run: {escaped(run.path)} ({model['name']}, {size:,} parameters, images {c}×{h}×{w})")
    for note in WRITERS[options.to](run, out):
        print(f"Check: {escaped(note)}")
    print(f"Written: {escaped(out)} ({out.stat().st_size:,} bytes)")


def _to_onnx(run, out):
    from minicaps.export import onnx_file

    return onnx_file.write(run, out)


def _to_safetensors(run, out):
    tensors_file.save(out, run.model.state_dict(), description_of(run, inverts=False))
    return []


WRITERS = {"onnx": _to_onnx, "safetensors": _to_safetensors}


if __name__ == "__main__":
    sys.exit(start(main))
