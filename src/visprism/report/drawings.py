"""The figures of a report: models side by side, each drawn once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from visprism.figures import overview, panel
from visprism.report.content import Chapter, Content

OVERVIEW = "overview"


@dataclass(frozen=True)
class Drawing:
    """A figure of a report, what its files are called, and the section that it belongs to."""

    stem: str
    anchor: str
    label: str  # for screen readers
    figure: Figure


def drawings(content: Content) -> Iterator[Drawing]:
    """Every figure of a report, one at a time, so that one at a time is in memory."""
    figure = overview(content.results())
    if figure is not None:
        yield Drawing(OVERVIEW, OVERVIEW, "Quantities of each block against depth", figure)
    yield from _drawings_of(content.chapters)


def _drawings_of(chapters: Sequence[Chapter]) -> Iterator[Drawing]:
    for chapter in chapters:
        for part in chapter.sections:
            for ending, options in part.section.figures.items():
                for suffix, results in part.panels.items():
                    label = f"{part.section.title}: {', '.join(results)}"
                    figure = panel(results, **options)
                    yield Drawing(f"{part.anchor}{ending}{suffix}", part.anchor, label, figure)
