"""SIGINT and SIGTERM as a request to stop, so that a training can save before it ends."""

import signal
from contextlib import contextmanager


class StopRequest:
    """True in a condition once SIGINT (Ctrl-C) or SIGTERM has come; a second one interrupts."""

    def __init__(self):
        self.signal = None

    def __bool__(self):
        return self.signal is not None

    @contextmanager
    def listening(self):
        """Note the signals instead of being torn out of an update by them."""

        def note(number, frame):
            self.signal = number
            signal.signal(number, previous[number])

        previous = {n: signal.signal(n, note) for n in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield self
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
