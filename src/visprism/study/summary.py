"""The summary of a study: a sentence for each question that has a headline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from visprism.estimates.answers import DISAGREE, ONE_MEASURE, Answer
from visprism.estimates.questions import Question, question_of
from visprism.study.table import Row

_ALL_MODELS = 3  # that a sentence lists; of more, the lowest and the highest value
_EQUAL = 0.05  # relative difference up to which values count as about equal


@dataclass(frozen=True)
class Sentence:
    """What a study answers to one question."""

    question: Question
    text: str
    rows: Sequence[Row]  # that it is taken from
    measure: str = ""  # that its numbers are of; "" where the headline says it


def summary_of(rows: Sequence[Row], models: Sequence[str]) -> list[Sentence]:
    """A sentence for each question with a headline, in the order of the rows.

    It is about the first measure of the question. Where low values have an adjective, such as
    "flatter", it counts the measures by the model with the lowest value.
    """
    by_question: dict[str, list[Row]] = {}
    for row in rows:
        by_question.setdefault(row.question, []).append(row)
    sentences = (_sentence(question_of(q), of_q, models) for q, of_q in by_question.items())
    return [sentence for sentence in sentences if sentence.text]


def _sentence(question: Question, rows: Sequence[Row], models: Sequence[str]) -> Sentence:
    """The sentence of one question, without a text if it has none."""
    if not question.headline:
        return Sentence(question, "", rows)
    if question.lower and len(models) > 1:
        return Sentence(question, _counts(question, rows, models), rows)
    measure = rows[0].measure
    others = [row for row in rows if row.measure != measure]
    parts = [p for row in rows if row.measure == measure for p in _parts(row, others, models)]
    text = f"{'; '.join(parts)}." if parts else ""
    if DISAGREE in text or ONE_MEASURE in text:
        measure = ", and ".join(dict.fromkeys(row.measure for row in rows))
    return Sentence(
        question,
        text,
        [row for row in rows if row.measure in measure],
        "" if measure == question.headline.lower() else measure,
    )


def _parts(row: Row, others: Sequence[Row], models: Sequence[str]) -> list[str]:
    """The answers of a row and its difference.

    Where measures do not agree, the numbers of the other rows about the same part follow.
    """
    cells = {name: row.cells[name] for name in models if name in row.cells}
    if not cells:
        return [_joint(row)] if row.differences else []
    if len(cells) > _ALL_MODELS:
        names = sorted(cells, key=lambda name: cells[name].value)
        return [" to ".join(_model_text(name, cells[name]) for name in (names[0], names[-1]))]
    parts = [_model_text(name, a) + _others(name, a, others) for name, a in cells.items()]
    for pair, difference in row.differences.items():
        if isfinite(difference.value):
            significant = ", significant" if difference.significant else ""
            minus = " minus ".join(reversed(pair))
            parts.append(f"{minus}: {difference.labeled(row.unit)}{significant}")
    return parts


def _model_text(name: str, answer: Answer) -> str:
    """One answer: ``ResNet-20 conv blocks: low-pass, -0.18 [-0.19, -0.17]``."""
    if answer.subject and not answer.reading:  # a part that was selected, such as a block
        selection = f" ({answer.selection})" if answer.selection else ""
        return f"{name}: {answer.subject}, {answer.number}{selection}"
    words = " ".join(filter(None, (name, answer.subject)))
    reading = f": {answer.reading}," if answer.reading else ""
    symbol = f" {answer.symbol}" if answer.symbol else ""
    return f"{words}{reading}{symbol} {answer.number}"


def _others(name: str, answer: Answer, others: Sequence[Row]) -> str:
    """What the other measures of the same part say, where they do not agree."""
    if DISAGREE not in answer.reading and ONE_MEASURE not in answer.reading:
        return ""
    cells = (row.cells[name] for row in others if name in row.cells)
    return "".join(f" and {a.number}" for a in cells if a.subject == answer.subject)


def _joint(row: Row) -> str:
    """A number of two models together."""
    if row.difference is None:
        return row.difference_text()
    return "; ".join(filter(None, (row.difference.number(row.unit), row.difference.reading)))


def _counts(question: Question, rows: Sequence[Row], models: Sequence[str]) -> str:
    """By how many measures each model has the lowest value.

    Variants of a measure, such as other objectives, count once where the same model is lowest.
    """
    lowest: dict[str, dict[str, Row]] = {}  # by model and measure
    compared = [row for row in rows if len(row.cells) == len(models)]
    for row in compared:
        values = {name: row.cells[name].value for name in models}
        if all(map(isfinite, values.values())):
            ordered = sorted(values, key=values.__getitem__)
            gap = values[ordered[1]] - values[ordered[0]]
            equal = gap <= _EQUAL * abs(values[ordered[1]])
            model = "" if equal else ordered[0]
            lowest.setdefault(model, {}).setdefault(_measure_of(row), row)
    equal_ones = lowest.pop("", {})
    if not lowest:
        return ""
    total = sum(map(len, lowest.values())) + len(equal_ones)
    (most, first), *others = sorted(lowest.items(), key=lambda item: -len(item[1]))
    word = f"{question.lower}{'' if len(models) == 2 else ' than all others'}"
    counts = [f"{most} is {word} by {len(first)} of {total} measures{_examples(first)}"]
    counts += [f"{name} by {len(by)}{_examples(by)}" for name, by in others]
    if equal_ones:
        counts.append(f"values differ by at most {_EQUAL:.0%} in {len(equal_ones)}")
    depends = "depends on the measure: " if others else ""
    return f"{depends}{', '.join(counts)}; {_tests(compared)}."


def _measure_of(row: Row) -> str:
    """The quantity without its variant."""
    variant = next(iter(row.cells.values())).variant
    return row.quantity.removesuffix(f", {variant}") if variant else row.quantity


def _tests(rows: Sequence[Row]) -> str:
    """How many differences are significant, and which if there is one."""
    tested = [(row, d) for row in rows for d in row.differences.values() if isfinite(d.low)]
    if not tested:
        return "no difference has an interval"
    significant = [(row, d) for row, d in tested if d.significant]
    verb = "is" if len(significant) == 1 else "are"
    text = (
        f"{len(significant)} of {len(tested)} differences with an interval {verb} significant"
    )
    if len(significant) == 1:
        ((row, difference),) = significant
        text += f": {row.quantity}, {difference.number(row.unit)}"
    return text


def _examples(measures: Mapping[str, Row]) -> str:
    """The measures in parentheses, if they are at most two."""
    return f" ({'; '.join(measures)})" if len(measures) <= 2 else ""
