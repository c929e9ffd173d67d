"""A study at a glance: a line for each question that matters most, and the better model."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import floor, isfinite, log10

from visprism.estimates.answers import DISAGREE, ONE_MEASURE, Answer
from visprism.estimates.questions import Question, question_of
from visprism.estimates.text import DASH
from visprism.report.rows import Difference, Row, images_of

TIE, MIXED, UNKNOWN = "tie", "mixed", "can't tell"
_SENTENCES = 4  # differences that are worth a sentence
_SIDE_BY_SIDE = 4  # models up to which a text has a column for each
_COLUMNS = 5  # questions of a text about more models
STAR = "* better than every other model"


@dataclass(frozen=True)
class Line:
    """One question with the short answer of each model."""

    question: Question
    label: str  # of the quantity, with its unit
    cells: Mapping[str, str]  # by model: "91.0 ± 1.8", or what the number means
    better: str = ""  # a model, or TIE, MIXED, UNKNOWN; "" where no order is asked for
    reason: str = ""  # of UNKNOWN, or the best of a TIE if others are worse
    answers: Mapping[str, Answer] = field(default_factory=dict)  # numbers of one quantity
    rows: Sequence[Row] = ()  # that it is taken from, the one of the numbers first

    @property
    def arrow(self) -> str:
        """Up where higher is better, down where lower is."""
        arrows = {"higher": "\N{UPWARDS ARROW}", "lower": "\N{DOWNWARDS ARROW}"}
        return arrows.get(self.question.better, "")

    @property
    def images(self) -> str:
        """How many images were measured."""
        return images_of(self.rows[:1])

    @property
    def axis(self) -> tuple[float, float]:
        """The ends of the axis of the numbers; 0 to 100 for percents where more is better."""
        answers = self.answers.values()
        if self.question.better == "higher" and any(a.unit == "%" for a in answers):
            return 0.0, 100.0
        ends = [end for a in answers for end in a.scaled if isfinite(end)]
        low, high = min([0.0, *ends]), max(ends, default=1.0)
        return low, high if high > low else low + 1

    @property
    def marks(self) -> dict[str, tuple[float, ...]]:
        """Places on the axis, in percent, of each value and of the ends of its interval."""
        low, high = self.axis
        marks = {}
        for name, answer in self.answers.items():
            value, *ends = answer.scaled
            if isfinite(value):
                numbers = (value, *(ends if all(map(isfinite, ends)) else (value, value)))
                marks[name] = tuple(100 * (number - low) / (high - low) for number in numbers)
        return marks


def glance_of(rows: Iterable[Row], models: Sequence[str]) -> list[Line]:
    """A line for each question with a label, in the order of the rows.

    Numbers are of the first quantity of the question, or of the first that tells the models
    apart where all count. A model is better if it has the better value in a significant
    difference to each other model; where there is no paired difference, if the intervals do
    not overlap.
    """
    by_question: dict[str, list[Row]] = {}
    for row in rows:
        by_question.setdefault(row.question, []).append(row)
    questions = {
        question_of(text): kept
        for text, of_question in by_question.items()
        if (kept := [row for row in of_question if row.cells])
    }
    return [
        _numbers(question, of_q, models) if question.better else _words(question, of_q, models)
        for question, of_q in questions.items()
        if question.label
    ]


def _numbers(question: Question, rows: Sequence[Row], models: Sequence[str]) -> Line:
    first, better, reason = rows[0], "", ""
    if len(first.cells) > 1:
        compared = [r for r in rows if r.cells.keys() == first.cells.keys()]
        winners = {
            winner: row
            for row in reversed(compared if question.all_measures else rows[:1])
            if (winner := _better(question, row)) not in (TIE, UNKNOWN)
        }
        better = MIXED if winners else _better(question, first)
        if len(winners) == 1:
            ((better, first),) = winners.items()
        if better == UNKNOWN:
            reason = _reason(first)
        elif better == TIE and (beaten := {loser for _, loser in _won(question, first)}):
            reason = f"of {', '.join(name for name in first.cells if name not in beaten)}"
    cells = {name: short_text(first.cells[name]) for name in models if name in first.cells}
    rows = [first, *(row for row in rows if row is not first)]
    return Line(question, _label(question, first), cells, better, reason, first.cells, rows)


def _better(question: Question, row: Row) -> str:
    """The model that is better by one quantity, TIE, or UNKNOWN."""
    won = Counter(winner for winner, _ in _won(question, row))
    winner = [name for name in row.cells if won[name] == len(row.cells) - 1]
    orders = (_order(row, pair) for pair in combinations(row.cells, 2))
    return winner[0] if winner else UNKNOWN if None in orders else TIE


def _won(question: Question, row: Row) -> Iterator[tuple[str, str]]:
    """The pairs of which one model is better, that one first."""
    for pair in combinations(row.cells, 2):
        order = _order(row, pair)
        if order:
            yield pair if (order > 0) == (question.better == "lower") else pair[::-1]


def _order(row: Row, pair: tuple[str, str]) -> int | None:
    """1 if the second model has the higher value, -1 if the first one has, 0 for a tie.

    None where nothing tells.
    """
    difference = row.differences.get(pair)
    if difference is not None and isfinite(difference.low):
        if not difference.significant:
            return 0
        return 1 if difference.value > (1 if difference.form == "ratio" else 0) else -1
    first, second = (row.cells[name] for name in pair)
    if not all(map(isfinite, (first.low, second.low))):
        return None
    if first.low > second.high or second.low > first.high:
        return 1 if second.value > first.value else -1
    return None if difference is not None else 0


def _reason(row: Row) -> str:
    reasons = [d.missing for d in row.differences.values()]
    reasons += [answer.missing for answer in row.cells.values()]
    return next(filter(None, reasons), "the number has no interval")


def _words(question: Question, rows: Sequence[Row], models: Sequence[str]) -> Line:
    """What the numbers of each part of a model mean, or which part was selected."""
    cells = {}
    for name in models:
        parts: dict[str, str] = {}
        for answer in (row.cells[name] for row in rows if name in row.cells):
            text = answer.reading or short_text(answer)
            if question.with_number and answer.reading:
                text = f"{text} ({short_text(answer)})"
            parts.setdefault(answer.subject.removesuffix(" blocks"), _plain(text))
        if question.first_part:
            parts = dict(list(parts.items())[:1])
        texts = [" ".join(filter(None, part)) for part in parts.items()]
        if texts:
            cells[name] = ", ".join(texts)
    return Line(question, question.label, cells, rows=rows)


def _plain(reading: str) -> str:
    """A reading in one word where the measures do not agree."""
    if DISAGREE in reading or ONE_MEASURE in reading:
        return MIXED
    return UNKNOWN if reading.startswith("undecided") else reading


def _label(question: Question, row: Row) -> str:
    named = next(iter(row.cells.values())).id.startswith(question.of)
    measure = row.measure.partition(",")[0]  # the rest says where, and of what
    label = question.label if named else f"{question.topic}: {measure}"
    return f"{label} ({row.unit_text})" if row.unit else label


def short_text(answer: Answer) -> str:
    """A value with half the width of its interval, to two digits of that: ``91.0 ± 1.8``.

    Example:
        >>> short_text(Answer("", "", 0.912, 0.894, 0.931, "%"))
        '91.2 ± 1.9'
    """
    value, low, high = answer.scaled
    half = (high - low) / 2
    if not isfinite(half) or half <= 0:
        return f"{value:.3g}"
    digits = max(0, 1 - floor(log10(half)))
    return f"{value:.{digits}f} ± {half:.{digits}f}"


# Tables.


def glance_table(lines: Sequence[Line], models: Sequence[str]) -> list[tuple[str, ...]]:
    """A header, and a row for each question, or for each model if there are many."""
    if len(models) > _SIDE_BY_SIDE:
        return _by_model(lines, models)
    compared = any(line.better for line in lines)
    table: list[tuple[str, ...]] = [("", *models, *(["better"] if compared else []))]
    for line in lines:
        cells = [line.cells.get(name, DASH) for name in models]
        reason = f" ({line.reason})" if line.reason else ""
        table.append((line.label, *cells, *([line.better + reason] if compared else [])))
    return table if lines else []


def glance_text(lines: Sequence[Line], models: Sequence[str]) -> list[str]:
    """The table as lines of text."""
    table = glance_table(lines, models)
    note = [STAR] if table and len(models) > _SIDE_BY_SIDE else []
    return [*_aligned(table), *note]


def _by_model(lines: Sequence[Line], models: Sequence[str]) -> list[tuple[str, ...]]:
    """A row for each model, by the first question, with a mark at the best of each column."""
    columns = [line for line in lines if line.answers][:_COLUMNS]
    if not columns:
        return []
    first = columns[0]
    sign = 1 if first.question.better == "lower" else -1
    order = sorted(
        models, key=lambda m: sign * first.answers[m].value if m in first.answers else 1e300
    )
    table: list[tuple[str, ...]] = [("", *(line.label for line in columns))]
    for name in order:
        cells = [
            line.cells.get(name, DASH) + (" *" if line.better == name else "")
            for line in columns
        ]
        table.append((name, *cells))
    return table


def _aligned(table: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]


# Sentences.


def sentences_of(lines: Sequence[Line], models: Sequence[str]) -> list[str]:
    """The largest significant differences of the best model and the next, as sentences."""
    ranked = []
    for line in lines:
        if line.better not in models or not line.question.sentence:
            continue
        worse = _next_best(line)
        pairs = ((line.better, worse), (worse, line.better))
        difference = next(filter(None, map(line.rows[0].differences.get, pairs)), None)
        if difference is not None:
            half = (difference.high - difference.low) / 2
            null = 1 if difference.form == "ratio" else 0
            strength = abs(difference.value - null) / half if half > 0 else 0.0
            ranked.append((strength, _sentence(line, difference, worse)))
    ranked.sort(key=lambda item: -item[0])
    return [sentence for _, sentence in ranked[:_SENTENCES]]


def _next_best(line: Line) -> str:
    sign = 1 if line.question.better == "lower" else -1
    others = (name for name in line.answers if name != line.better)
    return min(others, key=lambda name: sign * line.answers[name].value)


def _sentence(line: Line, difference: Difference, worse: str) -> str:
    number = replace(line.answers[worse], value=abs(difference.value)).scaled[0]
    return line.question.sentence.format(
        better=line.better,
        worse=worse,
        difference=f"{number:.2g}",
        low=short_text(line.answers[line.better]),
        high=short_text(line.answers[worse]),
    )
