"""`python -m minicaps.cli.child MODULE ARGUMENT…`: run a module until the parent process ends.

Standard input is a pipe that only the parent holds open, so it ends with the parent, however that
was stopped; a process killed with SIGKILL cannot stop its children itself.
"""

import os
import runpy
import sys
import threading


def main():
    """Run the module named in the arguments as `python -m` does."""
    threading.Thread(target=_end_with_standard_input, daemon=True).start()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def _end_with_standard_input():
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
