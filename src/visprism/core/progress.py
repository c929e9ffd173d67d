"""Progress: bars on a terminal, a few plain lines elsewhere; always on stderr.

A terminal that cannot move its cursor (``TERM=dumb``) gets lines too. Bars have no colors where
``NO_COLOR`` is set, which rich sees to.
"""

import os
import sys
import time
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from visprism.core.run import Progress

_SECONDS = 10  # between lines where there is no terminal
_COUNTS = 24  # characters of a line for counts, time and gaps
_LEAST = 12  # characters for label and bar


@contextmanager
def console_progress() -> Iterator["Progress"]:
    """A function that wraps an iterable and shows how far it is under a label.

    Of several processes only the first calls it.
    """
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield plain
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

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


def plain(items: Iterable, label: str) -> Iterator:
    """A line every ten seconds, and one at the end."""
    total = _length(items)
    start = printed = time.monotonic()
    count = 0
    for count, item in enumerate(items, start=1):
        yield item
        if time.monotonic() - printed > _SECONDS:
            printed = time.monotonic()
            of_total = f" of {total}" if total else ""
            print(f"{label}: {count}{of_total}", file=sys.stderr, flush=True)
    seconds = time.monotonic() - start
    print(f"{label}: {count} done in {seconds:.1f} s", file=sys.stderr, flush=True)


def _length(items: Iterable) -> int | None:
    return len(items) if isinstance(items, Sized) else None
