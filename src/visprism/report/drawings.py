"""The figures of a report: all models side by side."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from visprism.figures import overview, panel
from visprism.report.examination import Examination, slug
from visprism.report.section import Section
from visprism.report.sections import SECTIONS


@dataclass(frozen=True)
class Drawing:
    """A figure of a report, and what its files are called."""

    stem: str
    figure: Figure


def drawings(examinations: Sequence[Examination]) -> Iterator[Drawing]:
    """Every figure of a report, one at a time; `visprism.figures.save_figure` saves it."""
    yield from together(examinations)
    for section in SECTIONS:
        yield from drawings_of(section, examinations)


def together(examinations: Sequence[Examination]) -> Iterator[Drawing]:
    """What was measured of each block on one axis of depth; none for one quantity alone."""
    figure = overview({each.name: each.results for each in examinations})
    if figure is not None:
        yield Drawing("overview", figure)


def drawings_of(section: Section, examinations: Sequence[Examination]) -> Iterator[Drawing]:
    """The figures of one section; none where no model has a result for it."""
    results, tallies = section.results(examinations), section.tallies(examinations)
    if results:
        for ending, options in section.figures.items():
            figure = panel(list(results.values()), names=list(results), **options)
            yield Drawing(section.stem + ending, figure)
    if tallies:
        figure = panel(list(tallies.values()), names=list(tallies))
        yield Drawing(f"{slug(section.quantity)}-tally", figure)
