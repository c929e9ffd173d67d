"""A study at a glance: a line for each question that matters most, and the better model."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import floor, inf, isfinite, log10

from visprism.estimates.answers import DISAGREE, ONE_MEASURE, POINTS, Answer
from visprism.estimates.questions import ROUNDS, Question, question_of
from visprism.estimates.text import DASH, MINUS
from visprism.report.rows import Difference, Row, images_of

MIXED, UNKNOWN = "mixed", "can't tell"
NOT_FOUND = "no difference found"
_SENTENCES = 4  # differences that are worth a sentence
SIDE_BY_SIDE = 4  # models up to which a text has a column for each
_ASYMMETRY = 0.1  # of the sides of an interval, up to which ± is half of its width
_COLUMNS = 5  # questions of a text about more models
LETTERS = (
    "Models with a common letter do not differ significantly (pairs adjusted by Holm's method)."
)


@dataclass(frozen=True)
class Line:
    """One question with the short answer of each model."""

    question: Question
    label: str  # of the quantity, with its unit
    cells: Mapping[str, str]  # by model: "91.0 ± 1.8", or what the number means
    better: str = ""  # a model, or what is known of an order; "" where none is asked for
    reason: str = ""  # why no model is better, or how many images would tell
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
    def letters(self) -> dict[str, str]:
        """A letter for each group of models without significant differences, the best first.

        Models that differ significantly have no letter in common.

        Source: Piepho (2004), An algorithm for a letter-based representation of all-pairwise
        comparisons.
        """
        if len(self.answers) < 2 or not self.question.better:
            return {}
        ranked = ranked_by(self, list(self.answers))
        groups = [set(ranked)]
        for pair in _won(self.question, self.rows[0]):
            split = [group - {name} for group in groups for name in pair if {*pair} <= group]
            whole = [group for group in groups if not {*pair} <= group]
            groups = []
            for group in sorted(whole + split, key=len, reverse=True):
                if not any(group <= other for other in groups):
                    groups.append(group)
        groups.sort(key=lambda group: sorted(map(ranked.index, group)))
        letters = dict(zip("abcdefghijklmnopqrstuvwxyz", groups, strict=False))
        return {n: "".join(a for a, group in letters.items() if n in group) for n in ranked}

    @property
    def best(self) -> list[str]:
        """The models that no other one is known to be better than, if some are worse."""
        best = _best(self.question, self.rows[0]) if self.question.better else []
        return best if len(best) < len(self.answers) else []

    @property
    def axis(self) -> tuple[float, float]:
        """The ends of the axis, which spans the numbers and their intervals."""
        ends = [x for a in self.answers.values() for x in a.scaled if isfinite(x)]
        low, high = min(ends, default=0.0), max(ends, default=1.0)
        return (low, high) if high > low else (low - 0.5, high + 0.5)

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

    Numbers are of the first quantity of the question; where all its measures count, of the
    first that tells the models apart. A model is better if it has the better value in a
    significant difference to each other model, adjusted over all pairs; where there is no
    paired difference, if the intervals do not overlap.
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
    first = rows[0]
    better = reason = ""
    if len(first.cells) > 1:
        better, reason = _compared(question, first)
        measures = [r for r in rows if r.cells.keys() == first.cells.keys()]
        if question.all_measures and len(measures) > 1:
            words = {_compared(question, row)[0] for row in measures}
            winners = {word for word in words if word in first.cells}
            if winners and (words != winners or len(winners) > 1):
                better, reason = MIXED, "no conclusion: the measures disagree"
    cells = {name: short_text(first.cells[name]) for name in models if name in first.cells}
    rows = [first, *(row for row in rows if row is not first)]
    return Line(question, _label(question, first), cells, better, reason, first.cells, rows)


def _compared(question: Question, row: Row) -> tuple[str, str]:
    """The better model or what is known of the order, and what would tell more."""
    best = _best(question, row)
    pairs = list(combinations(row.cells, 2))
    if len(best) == 1:
        return best[0], ""
    among = [pair for pair in pairs if {*pair} <= {*best}] or pairs
    unknown = next((pair for pair in among if _order(row, pair) is None), None)
    if unknown is not None:
        return UNKNOWN, _reason(row, unknown)
    of = f"{', '.join(best)}: " if len(best) < len(row.cells) else ""
    differences = [d for pair in among if (d := row.differences.get(pair))]
    open_ones = [d for d in differences if not d.equal]
    if not open_ones and len(differences) == len(among):
        same = all(d.same for d in differences)
        margin = next((d.margin_text for d in differences if not d.same), "")
        return of + ("equal: the same network" if same else f"equal within {margin}"), ""
    enough = max((d.enough for d in open_ones if isfinite(d.enough)), default=0.0)
    reason = f"about {round_up(enough):,} images decide" if enough else ""
    ends = f" ({_ends(row, open_ones[0])})" if len(open_ones) == 1 else ""
    return of + NOT_FOUND + ends, reason


def round_up(number: float) -> int:
    """The number with two digits, rounded up.

    Example:
        >>> round_up(1234.5), round_up(77)
        (1300, 77)
    """
    step = 10 ** max(0, floor(log10(max(number, 1.0))) - 1)
    return int(-(-number // step) * step)


def _ends(row: Row, difference: Difference) -> str:
    """The interval of a difference in the unit of the answers: ``−5.2 to +7.0``."""
    scale = 100 if row.unit in ("%", POINTS) and difference.form == "difference" else 1
    low, high = scale * difference.low, scale * difference.high
    sign = "+" if difference.form == "difference" else ""
    digits = max(0, 1 - floor(log10(max((high - low) / 2, 1e-12))))
    return f"{low:{sign}.{digits}f} to {high:{sign}.{digits}f}".replace("-", MINUS)


def _best(question: Question, row: Row) -> list[str]:
    """The models that no other one is better than."""
    beaten = {loser for _, loser in _won(question, row)}
    return [name for name in row.cells if name not in beaten]


def _won(question: Question, row: Row) -> Iterator[tuple[str, str]]:
    """The pairs of which one model is better, that one first."""
    for pair in combinations(row.cells, 2):
        order = _order(row, pair)
        if order:
            yield pair if (order > 0) == (question.better == "lower") else pair[::-1]


def _order(row: Row, pair: tuple[str, str]) -> int | None:
    """1 if the second model has the higher value, -1 if the first one has, 0 if neither.

    None where nothing tells.
    """
    difference = row.differences.get(pair)
    if difference is not None and (difference.same or isfinite(difference.low)):
        if not difference.significant:
            return 0
        return 1 if difference.value > difference.null else -1
    first, second = (row.cells[name] for name in pair)
    if not all(map(isfinite, (first.low, second.low))):
        return None
    if first.low > second.high or second.low > first.high:
        return 1 if second.value > first.value else -1
    return None if difference is not None else 0


def _reason(row: Row, pair: tuple[str, str]) -> str:
    difference = row.differences.get(pair)
    reasons = [difference.missing] if difference else []
    reasons += [row.cells[name].missing for name in pair]
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
    counts = len(rows) == 1 and question.topic == "cost"
    return Line(
        question, question.label, cells, answers=rows[0].cells if counts else {}, rows=rows
    )


def _plain(reading: str) -> str:
    """A reading in one word where the measures do not agree."""
    if DISAGREE in reading or ONE_MEASURE in reading:
        return MIXED
    return UNKNOWN if reading.startswith("undecided") else reading


def _label(question: Question, row: Row) -> str:
    if question.topic == "cost":
        return f"{row.quantity} ({row.unit})" if row.unit else row.quantity
    first = next(iter(row.cells.values()))
    named = question.of in ("", first.id.partition(".")[0])
    measure = row.measure.partition(",")[0]  # the rest says where, and of what
    label = question.label if named else f"{question.topic}: {measure}"
    label = row.quantity if label == "performance" else label
    if question.of_labels:
        label = label.replace("accuracy", first.outcome)
    if question.with_size and row.quantity.startswith(row.measure):
        label += row.quantity.removeprefix(row.measure)
    return f"{label} ({row.unit_text})" if row.unit else label


def _digits(number: float) -> str:
    """Three digits, without an exponent for thousands: ``1,770``."""
    return f"{float(f'{number:.3g}'):,.0f}" if 1000 <= abs(number) < 1e7 else f"{number:.3g}"


def short_text(answer: Answer) -> str:
    """A value with half the width of its interval, to two digits of that: ``91.0 ± 1.8``.

    The ends of the interval stand instead where its sides differ by more than a tenth.

    Example:
        >>> short_text(Answer("", "", 0.912, 0.894, 0.931, "%"))
        '91.2 ± 1.9'
        >>> short_text(Answer("", "", 0.012, 0.0, 0.048, "%"))
        '1.2 [0.0, 4.8]'
    """
    value, low, high = answer.scaled
    half = (high - low) / 2
    if answer.over == ROUNDS:
        return f"{_digits(value)} ({_digits(low)} to {_digits(high)})"
    if not isfinite(half) or half <= 0:
        return f"{value:.3g}"
    digits = max(0, 1 - floor(log10(half)))
    if abs(high + low - 2 * value) > _ASYMMETRY * max(high - value, value - low):
        return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"
    return f"{value:.{digits}f} ± {half:.{digits}f}"


# Tables.


def glance_table(lines: Sequence[Line], models: Sequence[str]) -> list[tuple[str, ...]]:
    """A header, and a row for each question, or for each model if there are many."""
    if len(models) > SIDE_BY_SIDE:
        return _by_model(lines, models)
    compared = any(line.better for line in lines)
    table: list[tuple[str, ...]] = [("", *models, *(["better"] if compared else []))]
    for line in lines:
        cells = [line.cells.get(name, DASH) for name in models]
        reason = f" ({line.reason})" if line.reason and line.better == UNKNOWN else ""
        table.append((line.label, *cells, *([line.better + reason] if compared else [])))
    return table if lines else []


def glance_text(lines: Sequence[Line], models: Sequence[str]) -> list[str]:
    """The table as lines of text."""
    table = glance_table(lines, models)
    note = [LETTERS] if table and len(models) > SIDE_BY_SIDE else []
    return [*_aligned(table), *note]


def _by_model(lines: Sequence[Line], models: Sequence[str]) -> list[tuple[str, ...]]:
    """A row for each model, by the first question, with a mark at the best of each column."""
    columns = [line for line in lines if line.answers][:_COLUMNS]
    if not columns:
        return []
    table: list[tuple[str, ...]] = [("", *(line.label for line in columns))]
    letters = [line.letters for line in columns]
    for name in ranked_by(columns[0], models):
        cells = [
            " ".join(filter(None, (line.cells.get(name, DASH), of.get(name))))
            for line, of in zip(columns, letters, strict=True)
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
    """Significant differences of the best model and the next, in the order of the questions."""
    sentences = []
    for line in lines:
        if line.better not in models or not line.question.sentence:
            continue
        worse = next(name for name in ranked_by(line, models) if name != line.better)
        pairs = ((line.better, worse), (worse, line.better))
        difference = next(filter(None, map(line.rows[0].differences.get, pairs)), None)
        if difference is not None:
            sentences.append(_sentence(line, difference, worse))
    return sentences[:_SENTENCES]


def ranked_by(line: Line, models: Sequence[str]) -> list[str]:
    """The models from the best value of a line to the worst; those without a value last."""
    sign = 1 if line.question.better == "lower" else -1
    values = {name: sign * answer.value for name, answer in line.answers.items()}
    return sorted(models, key=lambda name: values.get(name, inf))


def _sentence(line: Line, difference: Difference, worse: str) -> str:
    number = replace(line.answers[worse], value=abs(difference.value)).scaled[0]
    return line.question.sentence.format(
        better=line.better,
        worse=worse,
        difference=f"{number:.2g}",
        low=short_text(line.answers[line.better]),
        high=short_text(line.answers[worse]),
    )
