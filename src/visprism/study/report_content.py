"""What the report shows of a study: its table, its results by section, its manifest."""

from collections.abc import Collection, Iterator
from dataclasses import replace

from visprism.core.provenance import Provenance
from visprism.report import Cell, Chapter, Content, Omission, Question, chapters_of
from visprism.report.content import label_of
from visprism.results.base import Result
from visprism.study.store import file_names
from visprism.study.study import Entry, Study
from visprism.study.table import Row

Origin = tuple[str, type[Result]]  # analysis, and type of the result with the answer


def content_of(study: Study, *, title: str = "", files: Collection[str] = ()) -> Content:
    """The content of the report of a study.

    Args:
        study: what to show.
        title: heading of the page; the names of the models where it is empty.
        files: tables that stand beside the page, relative to it; those of the study are linked.

    Raises:
        InputError: if an analysis of the study is not registered.
    """
    by_analysis: dict[str, list[Entry]] = {}
    for entry in study.entries:
        by_analysis.setdefault(entry.analysis, []).append(entry)
    chapters = [
        _described(chapter, by_analysis[chapter.analysis.name], files)
        for chapter in chapters_of(
            {name: {e.models: e.results for e in es} for name, es in by_analysis.items()}
        )
    ]
    return Content(
        title=title or ", ".join(study.models),
        models=study.models,
        questions=_questions(study, {c.analysis.name: c for c in chapters}),
        chapters=chapters,
        omissions=_omissions(study),
        manifest=_manifest(study),
    )


def _described(chapter: Chapter, entries: list[Entry], files: Collection[str]) -> Chapter:
    tables = [
        name.removesuffix(".npz") + ".csv"
        for entry in entries
        for name in file_names(entry.models, entry.analysis, entry.results)
    ]
    return replace(
        chapter,
        options=entries[0].options,
        images=entries[0].images,
        seconds={label_of(e.models): e.seconds for e in entries},
        files=tuple(name for name in tables if name in files),
    )


def _questions(study: Study, chapters: dict[str, Chapter]) -> list[Question]:
    origins = dict(_origins(study))
    reasons = {(f.model, f.analysis): f.reason for f in study.failures}
    return [
        _question(row, study, origins[row.question, row.quantity], chapters, reasons)
        for row in study.table()
    ]


def _origins(study: Study) -> Iterator[tuple[tuple[str, str], Origin]]:
    for entry in reversed(study.entries):  # the first one that answers a question decides
        for result in reversed(entry.results):
            for answer in result.answers():
                yield (answer.question, answer.quantity), (entry.analysis, type(result))


def _question(
    row: Row,
    study: Study,
    origin: Origin,
    chapters: dict[str, Chapter],
    reasons: dict[tuple[str, str], str],
) -> Question:
    analysis, kind = origin
    anchor = chapters[analysis].anchor_of(kind)
    cells = {}
    for model in study.models:
        answer = row.cells.get(model)
        if answer is None:
            failure = reasons.get((model, analysis))
            cells[model] = Cell(
                mark="not applicable",
                reason=failure or _without_number(row),
                failed=failure is not None,
                anchor=anchor,
            )
        else:
            cells[model] = Cell(str(answer), answer.verdict, anchor=anchor)
    claims = [answer.claim for answer in row.cells.values() if answer.claim]
    return Question(
        row.question,
        row.quantity,
        cells,
        claim=claims[0] if claims else "",
        difference=row.difference_value(),
        significant=row.difference is not None and row.difference.significant,
        remark="" if row.difference is None else row.difference.remark,
    )


def _without_number(row: Row) -> str:
    """Why a model without a failure has no number in a row."""
    if not row.cells:
        return "a number of both models"
    return "the analysis gives no such number for this model"


def _omissions(study: Study) -> list[Omission]:
    """Failures, with models that share analysis and reason together; errors come first."""
    groups: dict[tuple[str, str, bool], list[str]] = {}
    for f in study.failures:
        groups.setdefault((f.analysis, f.reason, f.kind == "failed"), []).append(f.model)
    omissions = [
        Omission(analysis, tuple(models), reason, failed)
        for (analysis, reason, failed), models in groups.items()
    ]
    return sorted(omissions, key=lambda o: not o.failed)


def _manifest(study: Study) -> dict[str, str]:
    """Facts about the study, with their values as text."""
    origin = next((r.provenance for e in study.entries for r in e.results), Provenance())
    entries = {
        "Models": ", ".join(study.models),
        "Data": origin.data,
        "Split": origin.split,
        "Image shape": "x".join(map(str, origin.image_shape)),
        "Images, digest": str(study.header.get("images", "")),
        "Training images, digest": str(study.header.get("training images", "")),
        "Seed": str(study.header.get("seed", origin.seed)),
        "Precision": origin.precision,
        "Device": origin.device,
        "Processes": str(origin.processes),
        "Command": origin.command,
        "Date": origin.created,
        "Seconds": f"{study.header['seconds']:.1f}" if "seconds" in study.header else "",
        "visprism": origin.visprism,
        "torch": origin.torch,
        "Python": origin.python,
    }
    return {fact: value for fact, value in entries.items() if value}
