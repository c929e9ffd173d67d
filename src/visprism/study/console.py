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
    """How long a study still takes: the plan, times how much longer its first parts took.

    Args:
        clock: the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begin = clock()  # of the study, then of the measurement that runs
        self._planned: float | None = None  # seconds of the whole plan
        self._expected = self._taken = 0.0  # seconds of measurements that are complete
        self._running: Started | None = None
        self._unfinished: set[str] = set()  # analyses of the measurement that runs
        self._after = 0.0  # seconds expected of what follows

    def note(self, event: Event) -> None:
        """Take an event of the study into account."""
        match event:
            case Planned(plan):
                self._planned = self._after = plan.seconds
            case Started(_, analyses, _, _, seconds_after):
                self._running, self._begin = event, self._clock()
                self._unfinished, self._after = set(analyses), seconds_after
            case Finished(entry, resumed=False):
                self._finish(entry.analysis)
            case Stopped(failure):
                self._finish(failure.analysis)

    @property
    def seconds(self) -> float | None:
        """Expected seconds until everything is measured; None before the plan is made."""
        if self._planned is None:
            return None
        # Half as long and twice as long are equally far from the plan.
        weight = self._expected / max(self._expected + _TRUST * self._planned, 1e-9)
        pace = (self._taken / self._expected) ** weight if weight else 1.0
        left = pace * self._after
        if self._running is not None:
            elapsed = self._clock() - self._begin
            left += max(pace * self._running.seconds - elapsed, 0.0)
        return left

    def __str__(self) -> str:
        """A line about the whole study."""
        if self.seconds is None:
            passed = self._clock() - self._begin
            return f"Reading models and data, and timing passes ({passed:.0f} s)"
        if self._running is None and not self._after:
            return ""  # complete
        return f"All analyses: about {self.seconds:.0f} s left"

    def _finish(self, analysis: str) -> None:
        self._unfinished.discard(analysis)
        if self._running is not None and not self._unfinished:
            self._taken += self._clock() - self._begin
            self._expected += self._running.seconds
            self._running = None


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


def study_listener(status: StatusLine) -> Listener:
    """A listener that prints what happens, and shows how long the study still takes."""
    time_left = TimeLeft()
    status.show(time_left.__str__)

    def listen(event: Event) -> None:
        time_left.note(event)
        print_event(event)

    return listen


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
        status = StatusLine()
        with console_progress(status) as progress:
            yield replace(run, progress=progress), study_listener(status)


def _ignore(event: Event) -> None:
    """The listener of a study that nobody watches."""
