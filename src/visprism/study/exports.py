"""Exports of a study: Markdown to read, JSON for programs, numbers for loggers."""

import re
from collections.abc import Sequence
from dataclasses import asdict
from math import isfinite
from typing import Any

import msgspec
import numpy as np

from visprism.core.provenance import Provenance
from visprism.estimates.answers import POINTS
from visprism.estimates.text import DASH
from visprism.report.rows import Row, findings_of
from visprism.study.record import StudyRecord

_OF_ANSWER = ("value", "low", "high", "over", "missing", "selected")
_FORMAT = 4  # of results.json; raise it when entries change their meaning


def markdown_of(study: StudyRecord) -> str:
    """The table, the findings by analysis, and what was not measured, as Markdown."""
    parts = [f"# {_escaped(', '.join(study.models))}", *_table(study)]
    lists = {"To read first": [_escaped(alarm) for alarm in study.alarms]}
    lists["Not covered"] = [_escaped(f"{m}: {t}") for m, ts in study.notes.items() for t in ts]
    lists |= {_escaped(analysis): _findings(study, analysis) for analysis in study.analyses}
    lists["Not measured"] = [
        f"{_escaped(f.analysis)}, {_escaped(f.model)}: {f.kind}, {_escaped(f.reason)}"
        for f in study.failures
    ]
    for title, items in lists.items():
        if items:
            parts.append("\n".join([f"## {title}", "", *(f"- {item}" for item in items)]))
    return "\n\n".join(parts) + "\n"


def json_of(study: StudyRecord) -> str:
    """Answers, differences, findings, failures, options and versions as JSON.

    A unit is its numbers' unit: what tables show in percent are fractions here.
    Numbers that are not finite are null, and so is whether a difference without an interval is
    significant.
    """
    origins = [r.provenance for e in study.entries for r in e.results]
    origin = origins[0] if origins else Provenance()
    content = {
        "format": _FORMAT,
        "models": study.models,
        "groups": study.groups,
        "questions": [_question(row) for row in study.table()],
        "questions of groups": [_question(row) for row in study.group_table()],
        "analyses": [
            {
                "analysis": entry.analysis,
                "models": entry.models,
                "options": entry.options,
                "images": entry.images,
                "seconds": entry.seconds,
                "results": [result.identifier for result in entry.results],
                "findings": [
                    {"text": f.text, "code": f.code, "severity": f.severity}
                    for f in findings_of(entry.results)
                ],
            }
            for entry in study.entries
        ],
        "failures": study.failures,
        "alarms": study.alarms,
        "notes": study.notes,
        "data": {"name": origin.data, "split": origin.split, "shape": origin.image_shape},
        "seed": study.header.get("seed", origin.seed),
        "seconds": study.header.get("seconds"),
        "versions": {
            "visprism": origin.visprism,
            "torch": origin.torch,
            "python": origin.python,
        },
    }
    encoded = msgspec.json.encode(content, enc_hook=_plain)  # NaN as null
    return msgspec.json.format(encoded, indent=1).decode() + "\n"


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else str(value)


def _table(study: StudyRecord) -> list[str]:
    grouped = _rows_table(study.group_table(), study.compared) if study.groups else []
    return [*grouped, *_rows_table(study.table(), study.models)]


def _rows_table(rows: Sequence[Row], models: Sequence[str]) -> list[str]:
    if not rows:
        return []
    differences = any(row.differences for row in rows)
    head = ["Question", *models, *(["Difference"] if differences else [])]
    lines = [_line(head), _line(["---"] * len(head), escape=False)]
    for row in rows:
        answers = [str(row.cells.get(name) or DASH) for name in models]
        last = [row.difference_text()] if differences else []
        lines.append(_line([f"{row.question} ({row.quantity})", *answers, *last]))
    return ["\n".join(lines)]


def _line(cells: list[str], *, escape: bool = True) -> str:
    return f"| {' | '.join(_escaped(c) if escape else c for c in cells)} |"


def _findings(study: StudyRecord, analysis: str) -> list[str]:
    return [
        f"{_escaped(' and '.join(entry.models))}: {_escaped(str(finding))}"
        for entry in study.entries
        if entry.analysis == analysis
        for finding in findings_of(entry.results)
    ]


def _escaped(text: str) -> str:
    """The text on one line, without what Markdown or HTML would read as markup."""
    line = " ".join(text.split())
    line = line.replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\|`*_\[\]])", r"\\\1", line)


def _question(row: Row) -> dict[str, Any]:
    differences = [
        {
            "first": first,
            "second": second,
            **asdict(difference),
            "significant": difference.significant if isfinite(difference.low) else None,
            "equal": difference.equal if isfinite(difference.low) else None,
        }
        for (first, second), difference in row.differences.items()
    ]
    return {
        "question": row.question,
        "quantity": row.quantity,
        "unit": "fraction" if row.unit in ("%", POINTS) else row.unit,
        "answers": {
            model: {name: getattr(answer, name) for name in _OF_ANSWER}
            for model, answer in row.cells.items()
        },
        "differences": differences,
    }


_LOGGED = {  # names of quantities that explain themselves in the legend of a curve
    "debiased_after": "debiased_ece_after_temperature",
    "filled": "effective_rank_over_channels",
    "mean_share": "outlier_share",
}


def scalars_of(study: StudyRecord) -> dict[str, float]:
    """The numbers of a study of one model under names that sort: analysis, part, quantity.

    For example ``visprism/fourier/attention/high_frequency``.
    """
    numbers = {}
    for entry in study.entries:
        for identifier, value in (n for r in entry.results for n in r.scalars().items()):
            _, quantity, *part = re.split("[:.]", identifier)
            quantity = _LOGGED.get(quantity, quantity).replace("-", "_")
            numbers["/".join(["visprism", entry.analysis, *part, quantity])] = value
    return numbers
