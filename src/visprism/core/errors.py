"""Errors of the user: one exception with one clear sentence."""

import errno
import re


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


_SHORTAGES = {  # by a pattern of the error
    "MemoryError|allocate memory|out of memory|failed to map segment": "there is not enough "
    "memory ({}). Use fewer images, smaller batches or smaller numbers.",
    "start new thread|BlockingIOError": "no more threads or processes can be started ({}). "
    "Raise their limit (ulimit -u) or the limit of memory (ulimit -v), or set "
    "OMP_NUM_THREADS=1.",
    "Too many open files": "too many files are open ({}). Raise the limit (ulimit -n).",
}


def shortage(error: BaseException) -> str:
    """What the machine has too little of, as a sentence; empty for any other error."""
    number = getattr(error, "errno", None)
    name = "MemoryError" if number == errno.ENOMEM else type(error).__name__
    reason = printable(str(error).strip().partition("\n")[0]) or "no details"
    for pattern, sentence in _SHORTAGES.items():
        if not isinstance(error, InputError) and re.search(pattern, f"{name}: {error}"):
            return sentence.format(reason)
    return ""


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
