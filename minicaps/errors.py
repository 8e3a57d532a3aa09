"""Exceptions with messages that explain a problem and suggest a solution."""

import functools
import inspect


class UserError(Exception):
    """Base class of errors that a user can cause and fix; commands print only their message."""


class DataError(UserError):
    """Raised when data is missing, damaged or invalid."""


class DeviceError(UserError, RuntimeError):
    """Raised when the requested device cannot be used; the message states what is missing."""


class CheckpointError(UserError, RuntimeError):
    """Raised when a checkpoint or result cannot be written or trusted."""


class Diverged(UserError, RuntimeError):
    """Raised when a loss becomes infinite or NaN.

    The message states when this happened and suggests remedies.
    """


class ProcessError(UserError, RuntimeError):
    """Raised when a process that was started for a measurement fails."""


class Interrupted(Exception):
    """Raised after the user has requested a stop and the state has been saved."""


class ShowsCall:
    """Base class that adds the constructor's signature to errors raised by incorrect calls."""

    def __init_subclass__(cls):
        super().__init_subclass__()
        if "__init__" in vars(cls):
            cls.__init__ = _showing_call(cls.__init__)


def _showing_call(construct):
    @functools.wraps(construct)
    def noting(self, *args, **kwargs):
        try:
            construct(self, *args, **kwargs)
        except (TypeError, ValueError) as error:
            if not hasattr(error, "__notes__"):  # the innermost call is the incorrect one
                signature = inspect.signature(type(self))
                error.add_note(f"The signature is {type(self).__name__}{signature}")
            raise

    return noting
