"""Interrupts: signals that wait until a model is restored."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def delayed_interrupts() -> Iterator[None]:
    """Inside, SIGINT and SIGTERM wait; on exit they are handled as they would have been.

    For the few assignments that restore a model: an exception between two of them would leave
    a part of it changed. Threads other than the main one get no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[tuple[int, FrameType | None]] = []
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    # Only functions of Python raise exceptions; the others end the process, or do nothing.
    handlers = {number: handler for number, handler in before.items() if callable(handler)}
    for number in handlers:
        signal.signal(number, lambda n, frame: received.append((n, frame)))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number, frame in received:
            handlers[signal.Signals(number)](number, frame)
