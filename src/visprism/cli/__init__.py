"""Command line: reads arguments, calls one function, prints.

Exit codes: 0 success, 1 an analysis failed, 2 bad input (one sentence, no traceback), 130
interrupted by Ctrl-C, 143 by SIGTERM. Nothing here imports torch before a command needs it, so
that ``visprism --help`` is fast.
"""

import logging
import os
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from visprism.cli.output import outcome
from visprism.cli.parser import parse
from visprism.core.errors import InputError
from visprism.core.interruption import ignore_signals, watch_signals


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of ``visprism``; returns the exit code."""
    begin = time.monotonic()
    words = list(sys.argv[1:] if argv is None else argv)
    flags: Sequence[str] = ()
    try:
        if argv is None:
            watch_signals()
        command, flags = parse(words or ["--help"])
        logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # it logs every retry
        if not sys.stderr.isatty():  # downloads of libraries draw bars with carriage returns
            os.environ.setdefault("TQDM_DISABLE", "1")
            os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        line = shlex.join(["visprism", *words])
        try:
            code = replace(command, line=line, begin=begin).run() or 0
        except (SystemExit, GeneratorExit) as error:  # of the user's code
            raise InputError(f"code of a model or a plug-in raised {error!r}") from error
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (Exception, KeyboardInterrupt) as error:
        ended = outcome(error, flags)
        if ended is None:
            raise
        sentence, code = ended
        print(f"visprism: {sentence}", file=sys.stderr)
    finally:
        if argv is None:
            ignore_signals()
    return code
