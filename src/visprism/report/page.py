"""The page: examinations as one HTML file that needs nothing else."""

from collections.abc import Sequence
from pathlib import Path

import jinja2

from visprism.core.errors import InputError
from visprism.core.files import atomic_write
from visprism.measure.features import Tally
from visprism.report.drawings import drawings_of, together
from visprism.report.examination import Examination, Finding, check_names, slug
from visprism.report.inline import inline_svg
from visprism.report.section import Section
from visprism.report.sections import SECTIONS
from visprism.report.summary import provenance, summary, verdicts
from visprism.report.tables import rows
from visprism.results.base import Result


def render(
    examinations: Sequence[Examination],
    path: Path | str,
    *,
    title: str = "",
    command: str = "",
) -> None:
    """Write the page, whole or not at all; the same examinations give the same bytes.

    It holds all that it shows. It links to nothing but ``results/NAME.csv`` beside it, where
    `file_name` gives NAME.

    Args:
        examinations: one per model.
        path: of the page.
        title: its heading; the models' names where it is empty.
        command: what made it, as the user typed it.

    Raises:
        InputError: if there is no examination, if two models' files would have one name, or if
            no section shows a result.
    """
    check(examinations)
    names = [each.name for each in examinations]
    html = _template().render(
        title=title or ", ".join(names),
        command=command,
        names=names,
        summary=summary(examinations),
        verdicts={each.name: verdicts(each.findings()) for each in examinations},
        overview=[
            inline_svg(
                drawing.figure, prefix=drawing.stem, label="All quantities against depth"
            )
            for drawing in together(examinations)
        ],
        notes={each.name: each.notes for each in examinations if each.notes},
        sections=[part for section in SECTIONS if (part := _part(section, examinations))],
    )
    with atomic_write(Path(path)) as scratch:
        scratch.write_text(html, encoding="utf-8", newline="\n")


def file_name(name: str, result: Result) -> str:
    """What a result of the model of this name is called as a file, without its ending."""
    if isinstance(result, Tally):
        return f"{slug(name)}-{slug(result.quantity)}-tally"
    stem = next(section.stem for section in SECTIONS if section.result is type(result))
    return f"{slug(name)}-{stem}"


def check(examinations: Sequence[Examination]) -> None:
    """Whether a page can show all of this.

    Raises:
        InputError: as `render` says.
    """
    if not examinations:
        raise InputError("a report needs at least one examined model, got none")
    check_names([each.name for each in examinations])
    for result in (result for each in examinations for result in each.tables()):
        kind = type(result).__name__
        if isinstance(result, Tally):
            kind = f"Tally of {result.quantity!r}"
            found = any(section.quantity == result.quantity for section in SECTIONS)
        else:
            found = any(section.result is type(result) for section in SECTIONS)
        if not found:
            raise InputError(
                f"no section of the report shows a {kind}; "
                "append a Section for it to visprism.report.SECTIONS"
            )


def _part(section: Section, examinations: Sequence[Examination]) -> dict[str, object] | None:
    """What the template needs for one section; None if no model has a result for it."""
    results, tallies = section.results(examinations), section.tallies(examinations)
    if not results:
        return None
    said = tallies | {name: r for name, r in results.items() if isinstance(r, Finding)}
    label = f"{section.title}: {', '.join(results)}"
    return {
        "section": section,
        "figures": [
            inline_svg(drawing.figure, prefix=drawing.stem, label=label)
            for drawing in drawings_of(section, examinations)
        ],
        "surfaces": {
            name: data
            for name, result in results.items()
            if section.surface and (data := section.surface(result))
        },
        "verdicts": {name: verdicts([finding]) for name, finding in said.items()},
        "tables": {
            name: rows(result, section.columns)
            for name, result in results.items()
            if section.columns
        },
        "files": [
            file_name(name, result) for name, result in [*results.items(), *tallies.items()]
        ],
        "provenance": provenance([result.provenance for result in results.values()]),
        "sentences": {name: r.provenance.sentence() for name, r in results.items()},
    }


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("visprism.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html")
