"""Errors of the user: one exception with one clear sentence."""


class InputError(ValueError):
    """A value from the user that cannot be used.

    The message names the value, the constraint and the remedy. The command line prints it
    without a traceback and exits with code 2; every other exception is a bug.
    """


class DamagedError(InputError):
    """A file that cannot be read, or that holds weights which are not finite."""


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


def printable(text: str, keep: str = "") -> str:
    r"""The text with control and bidirectional characters escaped, apart from those in `keep`.

    A name from a file could otherwise change the colors or the lines of a terminal.

    Example:
        >>> printable("a\x1b[31mb")
        'a\\x1b[31mb'
    """
    return "".join(
        char if char.isprintable() or char in keep else char.encode("unicode_escape").decode()
        for char in text
    )
