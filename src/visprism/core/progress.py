"""Progress: bars on a terminal, a line a minute elsewhere; always on stderr.

A terminal that cannot move its cursor (``TERM=dumb``) gets lines too. Bars have no colors where
``NO_COLOR`` is set, which rich sees to.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from visprism.core.run import Progress

_SECONDS = 60  # between lines where there is no terminal
_COUNTS = 24  # characters of a line for counts, time and gaps
_LEAST = 12  # characters for label and bar


class StatusLine:
    """A line about the whole of a command, which stands below its bars.

    Until something is shown, it says for how long the program has been loading.

    Args:
        begin: when it began, in seconds of `time.monotonic`; None for now.
    """

    def __init__(self, begin: float | None = None) -> None:
        self._start = time.monotonic() if begin is None else begin
        self._text: Callable[[], str] | None = None

    def show(self, text: Callable[[], str]) -> None:
        """Ask this function for the line from now on; an empty text is not shown."""
        self._text = text

    def __call__(self) -> str:
        """The line."""
        if self._text is not None:
            return self._text()
        return f"Loading ({time.monotonic() - self._start:.0f} s)"


@contextmanager
def console_progress(status: Callable[[], str] = str) -> Iterator["Progress"]:
    """A function that wraps an iterable and shows how far it is under a label.

    Only the first of several processes shows anything.
    """
    if os.environ.get("RANK", "0") != "0":
        yield _untracked
        return
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield PlainLines(status)
        return
    from rich.console import Console, RenderableType
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as TaskBars
    from rich.text import Text

    class Bars(TaskBars):
        def get_renderables(self) -> Iterator[RenderableType]:
            yield from super().get_renderables()
            if line := status():
                yield Text(line, overflow="ellipsis", no_wrap=True)

    console = Console(stderr=True)
    width = max(_LEAST, console.width - _COUNTS)  # of label and bar, on one line
    columns = [
        TextColumn("{task.description}"),
        BarColumn(min(40, width // 3)),
        MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    ]
    with Bars(*columns, console=console) as bars:

        def bar(items: Iterable, label: str) -> Iterable:
            room = width - min(40, width // 3)
            short = label if len(label) <= room else f"{label[: room - 1]}…"
            return bars.track(items, total=_length(items), description=short)

        yield bar


class PlainLines:
    """A line a minute, about what runs and about the whole; short work prints none."""

    def __init__(self, status: Callable[[], str] = str) -> None:
        self._status = status
        self._printed = time.monotonic()

    def __call__(self, items: Iterable, label: str) -> Iterator:
        """The items."""
        of_total = f" of {total}" if (total := _length(items)) else ""
        for count, item in enumerate(items, start=1):
            yield item
            if time.monotonic() - self._printed > _SECONDS:
                self._printed = time.monotonic()
                parts = filter(None, [f"{label}: {count}{of_total}", self._status()])
                print("; ".join(parts), file=sys.stderr, flush=True)


def _untracked(items: Iterable, label: str) -> Iterable:
    return items


def _length(items: Iterable) -> int | None:
    return len(items) if isinstance(items, Sized) else None
