"""Events of a study: what happens, as it happens, for progress bars, apps and callbacks."""

from collections.abc import Callable
from dataclasses import dataclass

from visprism.study.plan import Plan
from visprism.study.record import Entry, Failure


@dataclass(frozen=True)
class Planned:
    """What is going to run is known; nothing has been measured."""

    plan: Plan
    preparation: tuple[str, ...]  # how each model is given the images, one sentence each


@dataclass(frozen=True)
class Started:
    """An analysis of a model begins."""

    model: str
    analyses: tuple[str, ...]
    images: int
    seconds: float  # expected of it, at the pace of what has been measured
    seconds_after: float  # expected of what comes after it


@dataclass(frozen=True)
class Finished:
    """Results exist, and are written if the study has a folder."""

    entry: Entry
    resumed: bool  # read from the folder, not measured


@dataclass(frozen=True)
class Stopped:
    """An analysis of a model gave no result."""

    failure: Failure


Event = Planned | Started | Finished | Stopped
Listener = Callable[[Event], None]


def silent(event: Event) -> None:
    """The listener of a study within a training: no plan is shown, and no pass timed for it."""
