"""Ctrl-C and SIGTERM of a command: a flag that its loops read.

An exception that a signal handler raises can arrive anywhere, also in a hook of a library,
where Python prints it and continues. The handler here does nothing. A thread reads the number
of the signal, even while the main thread computes, and the loops of the main thread ask for it
at each step. A command that does not ask within four seconds, or that receives a second signal,
ends at once, which is safe because every file is written whole or not at all.
"""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

_PATIENCE = 4.0  # seconds until a command that does not ask ends
_ECHO = 1.0  # seconds within which a second signal counts as the first (shells send both)
_NUMBERS = (signal.SIGINT, signal.SIGTERM)
_arrived: list[int] = []  # numbers of signals
_heard = threading.Event()  # whether the command ends by itself
_remains: list[Callable[[], str]] = []  # what a command leaves, in words


def watch_signals() -> None:
    """Let Ctrl-C and SIGTERM set the flag; a Ctrl-C that is ignored stays ignored."""
    source, sink = socket.socketpair()
    sink.setblocking(False)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _do_nothing)
    signal.signal(signal.SIGTERM, _do_nothing)
    signal.set_wakeup_fd(sink.detach(), warn_on_full_buffer=False)
    if hasattr(os, "register_at_fork"):  # not on Windows
        os.register_at_fork(after_in_child=_leave_to_parent)
    threading.Thread(target=_listen, args=(source,), daemon=True).start()


def ignore_signals() -> None:
    """Ignore both signals, at the end: one that arrives while Python ends would abort it."""
    _heard.set()
    for number in _NUMBERS:
        signal.signal(number, signal.SIG_IGN)


def check_interruption() -> None:
    """Raise `KeyboardInterrupt` in the main thread, once, if a signal has arrived."""
    main = threading.current_thread() is threading.main_thread()
    if _arrived and main and not _heard.is_set():
        _heard.set()
        raise KeyboardInterrupt


def signal_number() -> int:
    """The number of the signal that ends this command."""
    return _arrived[0] if _arrived else signal.SIGINT


@contextmanager
def on_interruption(text: Callable[[], str]) -> Iterator[None]:
    """Inside, an interruption is reported with this text about what is kept."""
    _remains.append(text)
    try:
        yield
    except KeyboardInterrupt as interruption:
        raise KeyboardInterrupt(text()) from interruption
    finally:
        _remains.pop()


def interrupted(text: str) -> str:
    """The sentence about an interrupted command, with what it has kept."""
    return f"interrupted; {text or 'nothing was written'}"


def _do_nothing(number: int, frame: FrameType | None) -> None:
    """Handle a signal, of which Python has already notified the thread."""


def _leave_to_parent() -> None:
    """In a forked process: Ctrl-C is for the parent, which ends this process."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _arrived.clear()


def _listen(source: socket.socket) -> None:
    first = 0.0
    while True:
        try:
            number = source.recv(1)[0]
        except TimeoutError:
            source.settimeout(None)
            if not _heard.is_set():
                _end()
            continue
        if number not in _NUMBERS:
            continue
        if not _arrived:
            first = time.monotonic()
            source.settimeout(_PATIENCE)
        _arrived.append(number)
        if time.monotonic() - first > _ECHO:
            _end()


def _end() -> None:
    text = ""
    with suppress(Exception):
        text = _remains[-1]() if _remains else ""
    if sys.stderr.isatty():
        os.write(2, b"\x1b[?25h\n")  # the cursor, which progress bars hide
    os.write(2, f"visprism: {interrupted(text)}\n".encode())
    os._exit(128 + _arrived[0])
