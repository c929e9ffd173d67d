"""Progress: bars on a terminal, a few plain lines elsewhere; always on stderr."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from visprism.examine import Progress

_SECONDS = 10  # between lines where there is no terminal


@contextmanager
def progress_shown() -> Iterator["Progress"]:
    """A function that wraps what is gone through, and shows how far it is under a label.

    Of several processes the first shows it.
    """
    from visprism.core.processes import rank

    if rank() > 0:
        yield lambda items, label: items  # noqa: ARG005 (as it is called)
        return
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


@contextmanager
def steps_shown(batch_size: int) -> Iterator[Callable[[range, int], Iterable[int]]]:
    """A function that wraps the steps of training which are left, of so many in all."""
    from visprism.core.processes import rank

    if rank() > 0 or not sys.stderr.isatty():
        yield lambda steps, _: steps  # each epoch prints a line
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Speed(TextColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{(task.speed or 0) * batch_size:,.0f} images/s")

    columns = [TextColumn("training"), BarColumn(), MofNCompleteColumn(), Speed("")]
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bars:

        def bar(steps: range, total: int) -> Iterable[int]:
            task = bars.add_task("", total=total, completed=steps.start)
            for step in steps:
                yield step
                bars.update(task, completed=step + 1)

        yield bar


def plain(items: Iterable, label: str) -> Iterator:
    """A line every ten seconds, and one at the end."""
    total = _length(items)
    begun = told = time.monotonic()
    done = 0
    for done, item in enumerate(items, start=1):
        yield item
        if time.monotonic() - told > _SECONDS:
            told = time.monotonic()
            print(f"{label}: {done} of {total or 'many'}", file=sys.stderr, flush=True)
    seconds = time.monotonic() - begun
    print(f"{label}: {done} done in {seconds:.1f} s", file=sys.stderr, flush=True)


def _length(items: Iterable) -> int | None:
    return len(items) if isinstance(items, Sized) else None
