"""The page: examinations as one HTML file that needs nothing else."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path

import jinja2

from visprism.anatomy.cost import Costs
from visprism.errors import InputError
from visprism.measure.features import Tally
from visprism.measure.features.per_block import PerBlock
from visprism.report.drawings import drawings_of
from visprism.report.examination import Examination, check_names, slug
from visprism.report.inline import inline_svg
from visprism.report.section import Section
from visprism.report.sections import SECTIONS
from visprism.report.tables import MINUS, amount, rows
from visprism.result import Provenance, Result, written_whole


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
        verdicts={each.name: _verdicts(each.tallies()) for each in examinations},
        notes={each.name: each.notes for each in examinations if each.notes},
        sections=[part for section in SECTIONS if (part := _part(section, examinations))],
    )
    with written_whole(Path(path)) as scratch:
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
        fits = [
            s.quantity == result.quantity
            if isinstance(result, Tally)
            else s.result is type(result)
            for s in SECTIONS
        ]
        if not any(fits):
            raise InputError(
                f"no section of the report shows a {type(result).__name__}; "
                "append a Section for it to visprism.report.SECTIONS"
            )


def summary(examinations: Sequence[Examination]) -> dict[str, list[str]]:
    """What the models are made of, side by side: a fact -> its value for each model."""
    costs = [each.costs for each in examinations]
    return {
        "Input": ["x".join(map(str, c.provenance.image_shape)) for c in costs],
        "Parameters": [amount(c.parameters.sum()) for c in costs],
        "MACs per image": [amount(c.macs.sum()) for c in costs],
        "Blocks": [str(len(c)) for c in costs],
        "By kind": [
            ", ".join(f"{n} {kind}" for kind, n in Counter(c.kind.tolist()).items())
            for c in costs
        ],
        "Grids": [" → ".join(grids(c)) for c in costs],
        "Not on a grid": [", ".join(unobserved(each)) or "none" for each in examinations],
    }


def grids(costs: Costs) -> list[str]:
    """The grids that the blocks lie on, in forward order: 56x56, 28x28, ..."""
    shapes = [shape.split("x") for shape in costs.shape.tolist()]
    return [grid for grid, _ in groupby("x".join(s[1:]) for s in shapes if len(s) == 3)]


def unobserved(examination: Examination) -> list[str]:
    """Blocks that no result has a row for, because their output does not lie on a grid."""
    seen = [set(r.block.tolist()) for r in examination.results if isinstance(r, PerBlock)]
    return [b for b in examination.costs.block.tolist() if seen and b not in set.union(*seen)]


def _verdicts(tallies: Sequence[Tally]) -> list[str]:
    sentences = [
        sentence
        for tally in tallies
        for sentence in tally.sentences()
        or [f"no block keeps its grid and changes the {tally.quantity}"]
    ]
    return [f"{typeset(sentence[:1].upper() + sentence[1:])}." for sentence in sentences]


def typeset(sentence: str) -> str:
    """The sentence with minus signs before numbers, and per cent signs that keep to them."""
    return re.sub(r"(?<!\w)-(?=\d)", MINUS, sentence).replace(" %", "\N{NO-BREAK SPACE}%")


def _part(section: Section, examinations: Sequence[Examination]) -> dict[str, object] | None:
    """What the template needs for one section; None if no model has a result for it."""
    shown = [(each, result) for each in examinations if (result := section.of(each))]
    if not shown:
        return None
    names = ", ".join(each.name for each, _ in shown)
    tallies = [(each, section.tally_of(each)) for each, _ in shown]
    return {
        "section": section,
        "figures": [
            inline_svg(drawing.figure, prefix=drawing.stem, label=f"{section.title}: {names}")
            for drawing in drawings_of(section, examinations)
        ],
        "verdicts": {each.name: _verdicts([tally]) for each, tally in tallies if tally},
        "tables": {each.name: rows(result, section.columns) for each, result in shown},
        "files": [
            file_name(each.name, result)
            for each, result in [*shown, *tallies]
            if result is not None
        ],
        "provenance": provenance([result.provenance for _, result in shown]),
        "sentences": {each.name: result.provenance.sentence() for each, result in shown},
    }


def provenance(sources: Sequence[Provenance]) -> dict[str, list[str]]:
    """Every fact about where results come from -> its value for each."""
    facts = [asdict(source) for source in sources]
    return {name.replace("_", " "): [_fact(each[name]) for each in facts] for name in facts[0]}


def _fact(value: str | int | tuple[int, ...]) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("visprism.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html")
