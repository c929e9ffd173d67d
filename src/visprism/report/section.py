"""A section: how a page presents one type of result."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from visprism.measure.features import Tally
from visprism.report.examination import Examination
from visprism.results.base import Result


@dataclass(frozen=True)
class Section:
    """How a page presents one type of result, and the tallies that belong to it."""

    result: type[Result]
    stem: str  # of its files, and its anchor
    title: str
    shows: str  # what one sees, in two plain sentences
    # Of the table: column of the result -> heading, with its unit; none: no table is shown.
    columns: Mapping[str, str]
    # Ending of a figure's file name -> options of the figure.
    figures: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: {"": {}})
    quantity: str = ""  # of the tallies
    # What of a result can be turned, as JSON for the page's script; empty where nothing can.
    surface: Callable[[Result], str] | None = None

    def results(self, examinations: Sequence[Examination]) -> dict[str, Result]:
        """What is shown here: the model's name -> its result, for models that have one."""
        return {e.name: r for e in examinations for r in e.tables() if type(r) is self.result}

    def tallies(self, examinations: Sequence[Examination]) -> dict[str, Tally]:
        """What is said here about kinds of block, in the same way."""
        return {
            e.name: t for e in examinations for t in e.tallies() if t.quantity == self.quantity
        }
