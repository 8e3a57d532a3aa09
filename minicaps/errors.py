"""What can go wrong that is not a bug: every message is for the user and says what to do."""


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
