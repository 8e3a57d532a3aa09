"""Treat SIGINT and SIGTERM as requests to stop, so that training can save before it ends."""

import signal
from contextlib import contextmanager


class StopRequest:
    """Flag that becomes true when SIGINT (Ctrl-C) or SIGTERM arrives.

    A second signal interrupts the program immediately.
    """

    def __init__(self):
        self.signal, self._listens = None, False

    def __bool__(self):
        return self.signal is not None

    @contextmanager
    def listening(self):
        """Record signals inside the block so that they do not interrupt a parameter update.

        Inside such a block, another one has no effect.
        """
        if self._listens:
            yield self
            return

        def note(number, frame):
            self.signal = number
            signal.signal(number, previous[number])

        previous = {n: signal.signal(n, note) for n in (signal.SIGINT, signal.SIGTERM)}
        self._listens = True
        try:
            yield self
        finally:
            self._listens = False
            for number, handler in previous.items():
                signal.signal(number, handler)
