"""minicaps: a minimal, exact and fast NumPy/CuPy engine that teaches capsule networks."""

import signal
import sys

# While `python -m minicaps.…` imports its modules, Ctrl-C ends it without a word, not with a
# traceback; `minicaps.cli.command.start` then listens. Any other import leaves signals alone.
if (
    sys.argv[:1] == ["-m"]
    and any(word.startswith("minicaps.") for word in sys.orig_argv)
    and signal.getsignal(signal.SIGINT) == signal.default_int_handler
):
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from minicaps import ops
from minicaps.graph import no_grad
from minicaps.tensor import Tensor, op

__all__ = ["Tensor", "no_grad", "op", "ops"]
__version__ = "0.1.0"
