"""What a study prints on stderr while it runs: its plan, its progress, and what fails."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from visprism.core.processes import rank
from visprism.core.progress import console_progress
from visprism.core.run import Run
from visprism.study.events import Event, Listener, Planned, Stopped


def print_event(event: Event) -> None:
    """The plan before anything is measured, and failures as they happen."""
    if rank() > 0:
        return
    if isinstance(event, Planned):
        for line in (*event.preparation, "Plan:", *(f"  {s}" for s in event.plan.lines())):
            print(line, file=sys.stderr, flush=True)
    elif isinstance(event, Stopped):
        f = event.failure
        print(f"{f.kind}: {f.analysis} of {f.model}: {f.reason}", file=sys.stderr, flush=True)


@contextmanager
def reported(run: Run, listener: Listener | None) -> Iterator[tuple[Run, Listener]]:
    """The run and the listener of a study; where somebody watches, plan and progress are shown.

    Somebody watches at a terminal and in a notebook, unless a listener or a progress is given.
    """
    watched = sys.stderr.isatty() or "ipykernel" in sys.modules
    if listener is not None or run.progress is not None or not watched:
        yield run, listener or _ignore
    elif rank() > 0:
        yield run, _ignore
    else:
        with console_progress() as progress:
            yield replace(run, progress=progress), print_event


def _ignore(event: Event) -> None:
    """The listener of a study that nobody watches."""
