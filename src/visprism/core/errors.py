"""Errors of the user: one exception with one clear sentence."""


class InputError(ValueError):
    """A value from the user that cannot be used.

    The message names the value, the constraint and the remedy. The command line prints it
    without a traceback and exits with code 2; every other exception is a bug.
    """
