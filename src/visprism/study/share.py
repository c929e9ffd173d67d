"""The share of the time of a training that its measurements take."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from threading import Timer
from typing import TypeVar

from visprism.core.processes import gather
from visprism.study.plan import Step
from visprism.study.record import StudyRecord

T = TypeVar("T")
_CAUTION = 2.0  # times the expected seconds, for which the share must have room
_PATIENCE = 60.0  # seconds until a process says that it waits for the others


@dataclass
class Group:
    """Analyses that are measured together, and how long that takes."""

    names: Sequence[str]
    expected: float = 0.0  # seconds of the next measurement
    taken: float = 0.0  # seconds so far, with a part of what all groups have taken together
    measured: bool = False

    @classmethod
    def of(cls, step: Step, studies: Sequence[StudyRecord]) -> "Group":
        """A group that takes what it took in the last of the studies that has it."""
        group = cls([a.name for a in step.analyses])
        took = next(filter(None, map(group.seconds_in, reversed(studies))), 0.0)
        return replace(group, expected=took, measured=bool(took))

    def seconds_in(self, study: StudyRecord | None) -> float:
        """Seconds that its analyses took in a study; 0 if it has none of them."""
        entries = () if study is None else study.entries
        return max((e.seconds for e in entries if e.analysis in self.names), default=0.0)

    def __str__(self) -> str:
        return ", ".join(self.names)


def waits(groups: Sequence[Group], share: float, elapsed: float) -> list[float]:
    """Seconds until the share has room for each of n groups, the same in every process.

    A group has room if what it has taken, with twice what it is expected to take, is within
    share / n of the time since the start.
    """
    part = share / max(1, len(groups))
    seconds = [(g.taken + _CAUTION * g.expected) / part - g.expected - elapsed for g in groups]
    return gather(seconds)[0]


def agreed(value: T, say: Callable[[str], None]) -> T:
    """The value of the first process; says so if the others are awaited for long."""
    sentence = "waiting for the other processes, each of which must call Monitor.step too"
    late = Timer(_PATIENCE, say, [sentence])
    late.daemon = True
    late.start()
    try:
        return gather(value)[0]
    finally:
        late.cancel()
