"""A section: how a page presents one type of result."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from visprism.measure.features import Tally
from visprism.report.examination import Examination
from visprism.result import Result


@dataclass(frozen=True)
class Section:
    """How a page presents one type of result, and the tallies that belong to it."""

    result: type[Result]
    stem: str  # of its files, and its anchor
    title: str
    shows: str  # what one sees, in two plain sentences
    columns: Mapping[str, str]  # of the table: column of the result -> heading, with its unit
    # Ending of a figure's file name -> options of the figure.
    figures: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: {"": {}})
    quantity: str = ""  # of the tallies

    def of(self, examination: Examination) -> Result | None:
        """The result that is shown here."""
        return next((r for r in examination.tables() if type(r) is self.result), None)

    def tally_of(self, examination: Examination) -> Tally | None:
        """What is said here about kinds of block."""
        return next((t for t in examination.tallies() if t.quantity == self.quantity), None)
