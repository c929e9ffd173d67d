"""What a user can get wrong: one exception, one clear sentence."""


class InputError(ValueError):
    """A value that came from the user and cannot be used.

    The message is one sentence: what it got, what it wants, the way out. The command line
    prints it without a traceback and exits with code 2; every other exception is a bug of ours.
    """
