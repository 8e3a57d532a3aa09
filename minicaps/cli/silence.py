"""Suppress the traceback of Ctrl-C while a command is still being imported.

`python -m minicaps.…` imports this first: until `minicaps.cli.command.start` takes over, Ctrl-C
ends the process without a traceback. In other programs, this module does not change the handling of
signals.
"""

import signal
import sys

if (
    sys.argv[:1] == ["-m"]
    and any(word.split(".")[0] == "minicaps" for word in sys.orig_argv)
    and signal.getsignal(signal.SIGINT) == signal.default_int_handler
):
    signal.signal(signal.SIGINT, signal.SIG_DFL)
