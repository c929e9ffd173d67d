"""What a user can get wrong: one exception, one clear sentence."""


class InputError(ValueError):
    """A value that came from the user and cannot be used.

    The message is one sentence: what it got, what it wants, the way out. The command line
    prints it without a traceback and exits with code 2; every other exception is a bug of ours.
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
