"""What ends a training before its last epoch: its user, or a loss that is no number any more."""

import signal
from contextlib import contextmanager


class Interrupted(Exception):
    """The user asked to stop; the state has been saved."""


class Diverged(RuntimeError):
    """A loss became infinite or NaN; the message says when, and what to try."""


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
