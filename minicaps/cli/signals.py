"""Treat SIGINT and SIGTERM as requests to stop, so that training can save before it ends."""

import signal
import time
from contextlib import contextmanager

TOGETHER = 1.0  # seconds within which signals count as one: `timeout` and mpiexec may send several


class StopRequest:
    """Flag that becomes true when SIGINT (Ctrl-C) or SIGTERM arrives.

    A second signal, at least a second later, interrupts the program immediately.
    """

    def __init__(self):
        self.signal, self._came, self._listens = None, 0.0, False

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
            if self.signal is None:
                self.signal, self._came = number, time.monotonic()
            elif time.monotonic() - self._came >= TOGETHER:
                signal.signal(number, previous[number])
                signal.raise_signal(number)

        previous = {n: signal.signal(n, note) for n in (signal.SIGINT, signal.SIGTERM)}
        self._listens = True
        try:
            yield self
        finally:
            self._listens = False
            for number, handler in previous.items():
                signal.signal(number, handler)
