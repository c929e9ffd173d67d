"""Command line: reads arguments, calls one function, prints.

Exit codes: 0 success, 1 an analysis failed, 2 bad input (one sentence, no traceback), 130
interrupted. Nothing here imports torch before a command needs it, so that ``visprism --help``
is fast.
"""

import logging
import os
import shlex
import signal
import sys
from collections.abc import Sequence

from visprism.cli.parser import parser
from visprism.core.errors import InputError


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of ``visprism``; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        arguments = parser(words or ["--help"]).parse_args(words)
    except InputError as error:  # of a plug-in that cannot be loaded
        print(f"visprism: {error}", file=sys.stderr)
        return 2
    arguments.command = shlex.join(["visprism", *words])
    if argv is None:  # a scheduler's SIGTERM ends as Ctrl-C does: nothing is left behind
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # it tells each of its tries
    try:
        code = arguments.run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (InputError, OSError) as error:
        print(f"visprism: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:  # a command that has kept something says so
        print(f"visprism: interrupted; {str(stop) or 'nothing was written'}", file=sys.stderr)
        return 130
    return code or 0
