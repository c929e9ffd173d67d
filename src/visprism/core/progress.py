"""Progress: bars on a terminal, a few plain lines elsewhere; always on stderr."""

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from visprism.core.run import Progress

_SECONDS = 10  # between lines where there is no terminal


@contextmanager
def console_progress() -> Iterator["Progress"]:
    """A function that wraps an iterable and shows how far it is under a label.

    Of several processes only the first calls it.
    """
    if not sys.stderr.isatty():
        yield plain
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    ]
    with Bars(*columns, console=Console(stderr=True)) as bars:

        def bar(items: Iterable, label: str) -> Iterable:
            return bars.track(items, total=_length(items), description=label)

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
