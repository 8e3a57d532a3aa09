"""`python -m minicaps`: list the commands."""

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


def main():
    """Print each command with a short description."""
    print("usage: python -m minicaps.COMMAND [options]\n")
    for name, text in COMMANDS.items():
        print(f"  python -m minicaps.{name:12} {text}")
    print("\nAdd --help to a command to see its options.")
    print("In the repository, `python -m lessons` lists the lessons.")


if __name__ == "__main__":
    main()
