"""What a study prints on stderr while it runs: its plan, its progress, and what fails."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from visprism.core.processes import rank
from visprism.core.progress import StatusLine, console_progress
from visprism.core.run import Run
from visprism.study.events import Event, Finished, Listener, Planned, Started, Stopped

_TRUST = 0.07  # of the plan: until so much is measured, it counts more than the clock


class TimeLeft:
    """How long a study still takes, by its events and by how long its parts took so far.

    Args:
        clock: the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begin = clock()  # of the study, then of the measurement that runs
        self._after: float | None = None  # seconds expected of what follows
        self._running = 0.0  # seconds expected of the measurement that runs
        self._unfinished: set[str] = set()  # its analyses
        self._expected = self._taken = 0.0  # seconds of complete measurements

    def note(self, event: Event) -> None:
        """Take an event of the study into account."""
        match event:
            case Planned(plan):
                self._after = plan.seconds
                self._expected = self._taken = _TRUST * plan.seconds
            case Started(_, analyses, _, seconds, seconds_after):
                self._begin, self._running = self._clock(), seconds
                self._unfinished, self._after = set(analyses), seconds_after
            case Finished(entry, resumed=False):
                self._end(entry.analysis)
            case Stopped(failure):
                self._end(failure.analysis)

    def _end(self, analysis: str) -> None:
        if self._unfinished == {analysis}:
            self._expected += self._running
            self._taken += self._clock() - self._begin
        self._unfinished.discard(analysis)

    @property
    def seconds(self) -> float | None:
        """Expected seconds until everything is measured; None before the plan is made."""
        if self._after is None:
            return None
        factor = self._taken / self._expected if self._expected else 1.0
        if not self._unfinished:
            return factor * self._after
        passed = self._clock() - self._begin
        return factor * self._after + max(factor * self._running - passed, 0.0)

    def __str__(self) -> str:
        """A line about the whole study."""
        if self.seconds is None:
            passed = self._clock() - self._begin
            return f"Reading models and data, and timing passes ({passed:.0f} s)"
        if not self._unfinished and not self._after:
            return ""  # complete
        if not self.seconds:
            return "All analyses: longer than expected"
        return f"All analyses: about {self.seconds:.0f} s left"


def print_event(event: Event, *, verbose: bool = False) -> None:
    """The plan, each step of it if verbose, and failures as they happen."""
    if rank() > 0:
        return
    if isinstance(event, Planned):
        lines = [f"Plan: {event.plan.total()}"]
        if verbose:
            lines = ["Plan:", *(f"  {line}" for line in event.plan.lines())]
        for line in (*event.preparation, *lines):
            print(line, file=sys.stderr, flush=True)
    elif isinstance(event, Stopped) and event.failure.kind != "skipped":
        f = event.failure
        print(f"{f.kind}: {f.analysis} of {f.model}: {f.reason}", file=sys.stderr, flush=True)


def study_listener(
    status: StatusLine, *, verbose: bool = False, quiet: bool = False
) -> Listener:
    """A listener that shows how long the study takes, and prints what happens unless quiet."""
    time_left = TimeLeft()
    status.show(time_left.__str__)

    def listen(event: Event) -> None:
        time_left.note(event)
        if not quiet:
            print_event(event, verbose=verbose)

    return listen


@contextmanager
def reported(run: Run, listener: Listener | None) -> Iterator[tuple[Run, Listener]]:
    """The run and the listener of a study; where somebody watches, plan and progress are shown.

    Somebody watches at a terminal and in a notebook, unless a listener or a progress is given.
    """
    watched = sys.stderr.isatty() or "ipykernel" in sys.modules
    if listener is not None or run.progress is not None or not watched:
        yield run, listener or (lambda _: None)
    else:
        status = StatusLine()
        with console_progress(status) as progress:
            yield replace(run, progress=progress), study_listener(status)
