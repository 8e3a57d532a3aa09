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


class NothingLearned(UserError, RuntimeError):
    """Raised when a network has not learned anything, so that training should be restarted."""


class ProcessError(UserError, RuntimeError):
    """Raised when a process that was started for a measurement fails."""


class Interrupted(Exception):
    """Raised after the user has requested a stop and the state has been saved."""


def escaped(text, keep="") -> str:
    """Escape control characters, which a file name may contain and a terminal would obey.

    keep: characters to leave unchanged.
    """
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in str(text))


def counted(number, noun) -> str:
    """Return a number with its noun: 0 images, 1 image, 2,000 images; or 2 classes."""
    plural = noun + ("es" if noun.endswith("s") else "s")
    return f"{number:,} {noun if number == 1 else plural}"


class ShowsCall:
    """Base class that adds the constructor's signature to the error of an incorrect call."""

    def __init_subclass__(cls, **keywords):
        super().__init_subclass__(**keywords)
        if "__init__" in vars(cls):
            cls.__init__ = _showing_call(cls, cls.__init__)


def _showing_call(owner, construct):
    @functools.wraps(construct)
    def noting(self, *args, **kwargs):
        try:
            construct(self, *args, **kwargs)
        except (TypeError, ValueError) as error:
            # Only the first note, that of the innermost constructor, describes the incorrect call
            call = isinstance(error, TypeError) or "unpack" in str(error)
            if call and not hasattr(error, "__notes__"):
                parameters = str(inspect.signature(construct)).replace("(self, ", "(", 1)
                error.add_note(f"The signature is {owner.__name__}{parameters}")
            raise

    return noting
