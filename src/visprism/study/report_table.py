"""The table of a report: the rows of a study by question and measure, with their sections."""

from collections.abc import Iterator, Mapping, Sequence

from visprism.estimates.questions import question_of
from visprism.report import Cell, Chapter, Comparison, Measure, QuestionRows, SummarySentence
from visprism.results.paper_claims import PAPER_CLAIMS
from visprism.study.rows import Row, images_of
from visprism.study.study import Study
from visprism.study.summary import summary_of
from visprism.table.result import Result

Origin = tuple[str, type[Result]]  # analysis, and type of the result with the answer
Key = tuple[str, str]  # question and quantity


class ReportTable:
    """The table and the summary of a study as a report shows them."""

    def __init__(self, study: Study, chapters: Mapping[str, Chapter]) -> None:
        self.study = study
        self.chapters = chapters  # by analysis
        self.rows = study.table()
        self._origins = dict(_origins(study))
        self._failures = {(f.model, f.analysis): f.reason for f in study.failures}
        self._reasons = dict(_reasons(study))

    def questions(self) -> list[QuestionRows]:
        """Every question; rows that differ in the part of the model alone are one measure."""
        grouped: dict[str, dict[str, list[Row]]] = {}
        for row in self.rows:
            grouped.setdefault(row.question, {}).setdefault(row.measure, []).append(row)
        return [
            QuestionRows(
                question_of(text),
                [self._measure(rows) for rows in measures.values()],
                _claim([row for rows in measures.values() for row in rows]),
            )
            for text, measures in grouped.items()
        ]

    def summary(self) -> list[SummarySentence]:
        """The sentences of the summary with the sections that they are about."""
        return [
            SummarySentence(
                s.question.headline,
                s.text,
                s.measure,
                self._anchor(s.rows[0]),
                images_of(s.rows),
            )
            for s in summary_of(self.rows, self.study.models)
        ]

    def _measure(self, rows: Sequence[Row]) -> Measure:
        of_models = any(row.cells for row in rows)  # not of two models together
        cells = {m: self._cells(rows, m) for m in self.study.models} if of_models else {}
        differences = [_comparison(row) for row in rows if row.differences]
        return Measure(rows[0].measure, cells, differences, images_of(rows))

    def _cells(self, rows: Sequence[Row], model: str) -> list[Cell]:
        answers = [(row, row.cells[model]) for row in rows if model in row.cells]
        if not answers:
            return [self._empty(rows[0], model)]
        return [
            Cell(
                answer.number if answer.subject and not answer.measure else str(answer),
                answer.verdict,
                anchor=self._anchor(row),
                subject=answer.subject,
                reading=answer.reading,
            )
            for row, answer in answers
        ]

    def _empty(self, row: Row, model: str) -> Cell:
        """Why a model has no number."""
        analysis, kind = self._origins[row.question, row.quantity]
        failure = self._failures.get((model, analysis))
        reason = failure or self._reasons.get((model, kind))
        reason = reason or "the analysis gives no such number for this model"
        anchor = self._anchor(row)
        return Cell("", "not applicable", reason, failed=failure is not None, anchor=anchor)

    def _anchor(self, row: Row) -> str:
        analysis, kind = self._origins[row.question, row.quantity]
        return self.chapters[analysis].anchor_of(kind)


def _origins(study: Study) -> Iterator[tuple[Key, Origin]]:
    for entry in reversed(study.entries):  # the first one that answers a question decides
        for result in reversed(entry.results):
            for answer in result.answers():
                yield (answer.question, answer.quantity), (entry.analysis, type(result))


def _reasons(study: Study) -> Iterator[tuple[tuple[str, type[Result]], str]]:
    """Why results have no number, by model and type, where they state it."""
    for entry in study.entries:
        for result in entry.results:
            reason = getattr(result, "reason", "")
            if isinstance(reason, str) and reason and len(entry.models) == 1:
                yield (entry.models[0], type(result)), reason.rstrip(".")


def _comparison(row: Row) -> Comparison:
    difference = row.difference
    return Comparison(
        row.difference_value(),
        significant=difference is not None and bool(row.cells) and difference.significant,
        remark="" if difference is None else difference.remark,
        subject=next((a.subject for a in row.cells.values() if a.measure), ""),
        mark="" if difference is None else difference.verdict,
    )


def _claim(rows: Sequence[Row]):
    codes = [
        judged.claim
        for row in rows
        for judged in (*row.cells.values(), *row.differences.values())
        if judged.claim and judged.verdict
    ]
    return PAPER_CLAIMS.get(codes[0]) if codes else None
