"""The figures of a report: all models side by side."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from visprism.figures import panel
from visprism.report.examination import Examination, slug
from visprism.report.section import Section
from visprism.report.sections import SECTIONS
from visprism.result import Result


@dataclass(frozen=True)
class Drawing:
    """A figure of a report, and what its files are called."""

    stem: str
    figure: Figure


def drawings(examinations: Sequence[Examination]) -> Iterator[Drawing]:
    """Every figure of a report, one at a time; `visprism.figures.save_figure` saves it."""
    for section in SECTIONS:
        yield from drawings_of(section, examinations)


def drawings_of(section: Section, examinations: Sequence[Examination]) -> Iterator[Drawing]:
    """The figures of one section; none where no model has a result for it."""
    shown = [(e.name, result) for e in examinations if (result := section.of(e))]
    for ending, options in section.figures.items():
        yield from _drawing(section.stem + ending, shown, **options)
    tallies = [(e.name, tally) for e in examinations if (tally := section.tally_of(e))]
    yield from _drawing(f"{slug(section.quantity)}-tally", tallies)


def _drawing(
    stem: str, named: Sequence[tuple[str, Result]], **options: str
) -> Iterator[Drawing]:
    if named:
        names, results = zip(*named, strict=True)
        yield Drawing(stem, panel(results, names=names, **options))
