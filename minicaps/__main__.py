"""`python -m minicaps`: list the commands."""

import difflib
import shlex
import sys

from minicaps.errors import escaped

COMMANDS = {
    "train": "train a network and write a run folder",
    "evaluate": "evaluate a trained network on a data set",
    "predict": "classify images with a trained network",
    "plot": "draw figures of a run",
    "export": "write a network as an ONNX or safetensors file",
    "explore": "open a page in which a trained network computes in the browser",
    "data": "list, fetch and show data sets",
    "bench": "measure speed and memory",
    "experiments": "reproduce the experiments of the papers",
}


def main(arguments=None):
    """Print each command with a short description.

    Returns the exit code: 0, or 2 if there are arguments other than --help.
    """
    words = sys.argv[1:] if arguments is None else arguments
    if words and words[0] not in ("-h", "--help"):
        print(f"python -m minicaps: error: {_correction(words)}", file=sys.stderr)
        return 2
    print("usage: python -m minicaps.COMMAND [options]\n")
    for name, text in COMMANDS.items():
        print(f"  python -m minicaps.{name:12} {text}")
    print("\nAdd --help to a command to see its options.")
    print("In the repository, `python -m lessons` lists the lessons.")
    return 0


def _correction(words):
    """Say what to write instead of `python -m minicaps` with these words."""
    near = difflib.get_close_matches(words[0], COMMANDS, n=1)
    if not near:
        return f"there is no command {words[0]!r}: python -m minicaps lists the commands"
    line = escaped(shlex.join(["python", "-m", f"minicaps.{near[0]}", *words[1:]]))
    if near[0] == words[0]:
        return f"each command is a module: write {line}"
    return f"there is no command {words[0]!r}: do you mean {line}?"


if __name__ == "__main__":
    sys.exit(main())
