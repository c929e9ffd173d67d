"""Command line: reads arguments, calls one function, prints.

What a user can get wrong ends in one sentence and exit code 2, Ctrl-C in 130. Nothing here
imports torch before a command needs it, so that ``visprism --help`` answers at once.
"""

import logging
import os
import shlex
import signal
import sys
from collections.abc import Sequence

from visprism.cli.arguments import parser
from visprism.core.errors import InputError


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of ``visprism``; returns the exit code."""
    arguments = parser().parse_args(argv)
    arguments.command = shlex.join(["visprism", *(sys.argv[1:] if argv is None else argv)])
    if argv is None:  # a scheduler's SIGTERM ends as Ctrl-C does: nothing is left behind
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # it tells each of its tries
    try:
        arguments.run(arguments)
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
    return 0
