"""Errors of the user: one exception with one clear sentence."""


class InputError(ValueError):
    """A value from the user that cannot be used.

    The message names the value, the constraint and the remedy. The command line prints it
    without a traceback and exits with code 2; every other exception is a bug.
    """


class OutputError(OSError):
    """A file that could not be written, as on a full disk.

    The message is one sentence with the path and the reason; the command line treats it as an
    `InputError`. It keeps the number of the error that the file system reported.
    """

    def __init__(self, message: str, cause: OSError) -> None:
        super().__init__(message)
        self.errno, self.strerror = cause.errno, cause.strerror

    def __str__(self) -> str:
        """The message, where an `OSError` shows its number."""
        return str(self.args[0])


def check_type(name: str, value: object, *types: type | None) -> None:
    """Require an argument of one of several types; None stands for the value None.

    Raises:
        InputError: if it is of another type.
    """
    classes = tuple(type(None) if t is None else t for t in types)
    if not isinstance(value, classes):
        names = " or ".join("None" if t is None else t.__name__ for t in types)
        raise InputError(f"{name} must be of type {names}, got {value!r}")
