"""Errors that are not bugs: each message is for the user and says what to do."""

import functools
import inspect


class UserError(Exception):
    """Base of the errors that a user can cause and mend; commands print them as one sentence."""


class DataError(UserError):
    """Data that is missing, damaged or not what it should be."""


class DeviceError(UserError, RuntimeError):
    """The requested device cannot be used; the message says what is missing."""


class CheckpointError(UserError, RuntimeError):
    """A checkpoint or result that cannot be written, or a file that cannot be trusted as one."""


class Diverged(UserError, RuntimeError):
    """A loss became infinite or NaN; the message says when, and what to try."""


class ProcessError(UserError, RuntimeError):
    """A process started to measure something has failed."""


class Interrupted(Exception):
    """The user asked to stop; the state has been saved."""


class ShowsCall:
    """Base of classes whose constructors add the right call to the error of a wrong one."""

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
            if not hasattr(error, "__notes__"):  # the innermost layer's call is the wrong one
                signature = inspect.signature(type(self))
                error.add_note(f"The call is {type(self).__name__}{signature}")
            raise

    return noting
