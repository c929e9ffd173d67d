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
import threading
import time
from collections.abc import Sequence
from types import FrameType

from visprism.cli.errors import with_flags
from visprism.cli.parser import parse
from visprism.core.errors import InputError, printable


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of ``visprism``; returns the exit code."""
    begin = time.monotonic()
    words = list(sys.argv[1:] if argv is None else argv)
    flags: Sequence[str] = ()
    try:
        arguments = parse(words or ["--help"])
        arguments.command = shlex.join(["visprism", *words])
        arguments.begin = begin
        flags = arguments.flags
        if argv is None:
            _handle_signals()
        logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # it logs every retry
        if not sys.stderr.isatty():  # downloads of libraries draw bars with carriage returns
            os.environ.setdefault("TQDM_DISABLE", "1")
            os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        code = arguments.run(arguments)
        sys.stdout.flush()
        if argv is None:  # all is written
            _ignore_signals()
    except BrokenPipeError:  # the reader, such as `head`, has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (InputError, OSError) as error:
        message = printable(with_flags(str(error), flags), keep="\n")
        print(f"visprism: {message}", file=sys.stderr)
        return 2
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        reason = printable(str(error).strip().partition("\n")[0]) or "no details"
        print(
            f"visprism: there is not enough memory ({reason}). Use fewer images, smaller "
            "batches or smaller numbers.",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt as interruption:  # a command that has kept results says so
        if argv is None:
            _ignore_signals()
        message = str(interruption) or "nothing was written"
        print(f"visprism: interrupted; {message}", file=sys.stderr)
        return 128 + (_SIGNALS.pop() if _SIGNALS else signal.SIGINT)
    return code or 0


def _is_out_of_memory(error: Exception) -> bool:
    """Whether Python, NumPy or torch could not allocate memory."""
    words = ("allocate memory", "out of memory")
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)


_SIGNAL_NUMBERS = (signal.SIGINT, signal.SIGTERM)
_SIGNALS: list[int] = []  # that end this process
_PAUSE = 0.02  # seconds after which a signal that came too early is raised again


def _ignore_signals() -> None:
    """Ignore signals: one that arrives while Python ends its threads aborts the process."""
    for number in _SIGNAL_NUMBERS:
        signal.signal(number, signal.SIG_IGN)


def _handle_signals() -> None:
    """Let Ctrl-C and a scheduler's SIGTERM end a command alike: nothing is left behind.

    Where the process was started with Ctrl-C ignored, it stays so.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _ended)
    signal.signal(signal.SIGTERM, _ended)


def _ended(number: int, frame: FrameType | None) -> None:
    """End as after Ctrl-C, with the exit code of the signal.

    NumPy is waited for while it is imported: interrupted there it raises other errors.
    """
    if _imports_numpy(frame):
        threading.Timer(_PAUSE, signal.raise_signal, [number]).start()
        return
    _SIGNALS.append(number)
    signal.default_int_handler(number, frame)


def _imports_numpy(frame: FrameType | None) -> bool:
    """Whether a module of NumPy is executed in this frame or in one that called it."""
    while frame is not None:
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        if package == "numpy" and frame.f_code.co_name == "<module>":
            return True
        frame = frame.f_back
    return False
