"""Command line: reads arguments, calls one function, prints.

Exit codes: 0 success, 1 an analysis failed, 2 bad input (one sentence, no traceback), 130
interrupted by Ctrl-C, 143 by SIGTERM. Nothing here imports torch before a command needs it, so
that ``visprism --help`` is fast.
"""

import logging
import os
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from types import FrameType

from visprism.cli.output import outcome
from visprism.cli.parser import parse


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of ``visprism``; returns the exit code."""
    begin = time.monotonic()
    words = list(sys.argv[1:] if argv is None else argv)
    flags: Sequence[str] = ()
    try:
        if argv is None:
            _handle_signals()
        command, flags = parse(words or ["--help"])
        logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # it logs every retry
        if not sys.stderr.isatty():  # downloads of libraries draw bars with carriage returns
            os.environ.setdefault("TQDM_DISABLE", "1")
            os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        line = shlex.join(["visprism", *words])
        code = replace(command, line=line, begin=begin).run() or 0
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (Exception, KeyboardInterrupt) as error:
        # A module that a signal interrupts while it is imported may raise anything.
        is_bug = outcome(error, ()) is None
        ended = outcome(KeyboardInterrupt() if _SIGNALS and is_bug else error, flags)
        if ended is None:
            raise
        sentence, code = ended
        print(f"visprism: {sentence}", file=sys.stderr)
    finally:
        if argv is None:  # one that arrives while Python ends its threads aborts the process
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)
    return 128 + _SIGNALS.pop() if _SIGNALS and code not in (0, 1) else code


_SIGNALS: list[int] = []  # that end this process


def _handle_signals() -> None:
    """Let Ctrl-C and a scheduler's SIGTERM end a command alike: nothing is left behind.

    Where the process was started with Ctrl-C ignored, it stays so.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _ended)
    signal.signal(signal.SIGTERM, _ended)


class _Ended(KeyboardInterrupt):
    """What a signal raises.

    After a plain `KeyboardInterrupt` in an `exec`, such as a dataclass's, Python ends
    itself by SIGINT whatever `main` returns.
    """


def _ended(number: int, frame: FrameType | None) -> None:
    _SIGNALS.append(number)
    raise _Ended
