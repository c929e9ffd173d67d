"""The table of a study: one row per quantity, an answer of each model, and their difference.

Exports and pages show these rows.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import exp, isfinite, isnan, nan
from types import MappingProxyType
from typing import Literal, TypeVar

from visprism.core.provenance import Provenance
from visprism.estimates.answers import POINTS, Answer
from visprism.estimates.answers import difference as paired_difference
from visprism.estimates.findings import Finding
from visprism.estimates.questions import place_of, question_of
from visprism.estimates.text import DASH, interval_text, missing_text
from visprism.table.result import Result

Pair = tuple[str, str]  # names of two models
AnswerAndOrigin = tuple[Answer, Provenance]
Model = TypeVar("Model")
Form = Literal["difference", "ratio", "joint"]

ALL_PAIRS = 3  # models, up to which every pair is compared; and differences in one text


@dataclass(frozen=True)
class Difference:
    """The paired difference of two models in one quantity.

    Relative changes that are averaged in logs (`Answer.average` "geometric") are compared by
    their ratio, (1 + change of the second model) / (1 + change of the first): exp of the paired
    difference of the logs. The form "joint" is one number of both models, such as the
    consistency of their errors.
    """

    value: float  # second model less first, the ratio, or the number of both models
    low: float  # 95% interval; NaN where there is none
    high: float
    form: Form = "difference"
    over: str = "images"  # what the interval is taken over
    missing: str = ""  # why there is no interval
    reading: str = ""  # of a number of both models: what it means in words

    @property
    def significant(self) -> bool:
        """Whether the interval excludes 0, or 1 for a ratio."""
        equal = 1 if self.form == "ratio" else 0
        return self.low > equal or self.high < equal

    @property
    def remark(self) -> str:
        """``not significant``, or why there is no interval; empty if it is significant."""
        if isnan(self.value):
            return self.missing
        if not isfinite(self.low):
            return f"no interval: {self.missing}" if self.missing else "no interval"
        return "" if self.significant else "not significant"

    def labeled(self, unit: str) -> str:
        """The text with the remark, if there is one."""
        return f"{self.text(unit)} ({self.remark})" if self.remark else self.text(unit)

    def text(self, unit: str) -> str:
        """The number, and where that is not clear, of what and over what it is taken."""
        over = "" if self.over in ("", "images") else f" over {self.over}"
        if self.form == "joint" and not isnan(self.value):
            reading = f"; {self.reading}" if self.reading else ""
            return f"{self.number(unit)}{over} of both models{reading}"
        return f"{self.number(unit)}{'' if isnan(self.value) else over}"

    def number(self, unit: str) -> str:
        """Value and interval, in the unit of the answers; percentage points for percents."""
        if isnan(self.value):
            return "undefined"
        if self.form == "joint":
            return str(Answer("", "", self.value, self.low, self.high, unit))
        if self.form == "ratio":
            number = interval_text(self.value, self.low, self.high, null=1.0)
            return f"ratio of 1 + change {number}"
        points = POINTS if unit == "%" else unit
        return str(Answer("", "", self.value, self.low, self.high, points))


@dataclass(frozen=True)
class Row:
    """One question, and its answer for each model.

    A row about two models together has no cells; its numbers stand with the differences.
    """

    question: str
    quantity: str
    unit: str
    cells: Mapping[str, Answer]  # by model; a model without the number is missing
    differences: Mapping[Pair, Difference] = field(default_factory=dict)  # second less first
    images: Mapping[str, int] = field(default_factory=dict)  # by model: how many were measured
    missing: Mapping[str, str] = field(default_factory=dict)  # by model: why it has no answer
    anchor: str = ""  # of the section of a page with the results

    @property
    def measure(self) -> str:
        """The quantity without the part of a model that it is of."""
        return next((a.measure for a in self.cells.values() if a.measure), self.quantity)

    @property
    def subject(self) -> str:
        """The part of a model that all answers are of, where the measure does not name it."""
        return next((a.subject for a in self.cells.values() if a.measure), "")

    @property
    def unit_text(self) -> str:
        """The unit as a head names it."""
        return "points" if self.unit == POINTS else self.unit

    @property
    def difference(self) -> Difference | None:
        """The paired difference, if the study has two models."""
        return next(iter(self.differences.values())) if len(self.differences) == 1 else None

    def of_trained(self, untrained: Sequence[str]) -> "Row":
        """The row without random weights, if the question is about correct predictions."""
        if not question_of(self.question).of_labels:
            return self
        random = {*untrained}
        return replace(
            self,
            cells={name: a for name, a in self.cells.items() if name not in random},
            differences={p: d for p, d in self.differences.items() if not random & {*p}},
        )

    def lines(self, models: Sequence[str]) -> list[str]:
        """The row as text, with the number of images of each model."""
        cells = [
            f"  {name}: {cell_text(self.cells[name])}" for name in models if name in self.cells
        ]
        if self.differences:
            label = "difference: " if self.cells else ""
            cells.append(f"  {label}{self.difference_text()}")
        images = images_of([self])
        number = f"; {images} image{'' if images == '1' else 's'}" if images else ""
        return [f"{self.question} ({self.quantity}{number})", *cells]

    def bare_answer(self, model: str) -> str:
        """The number of a model with its interval; the unit stands in the head."""
        answer = self.cells[model]
        named = answer.subject and not answer.measure
        return self._bare(answer.number if named else str(answer))

    def bare_difference(self) -> str:
        """The difference of each pair of models with its interval, without the unit."""
        return self._bare(self._joined(lambda difference: difference.text(self.unit)))

    def _bare(self, text: str) -> str:
        for unit in (self.unit, POINTS):
            text = text if unit in ("", "%") else text.replace(f" {unit}", "")
        return text

    def difference_text(self) -> str:
        """The difference with its interval, and whether it is significant."""
        return self._joined(lambda difference: difference.labeled(self.unit))

    def _joined(self, text: Callable[[Difference], str]) -> str:
        """The text of each difference, after the names of the models if there are several."""
        if self.difference is not None and set(self.cells) <= {*next(iter(self.differences))}:
            return text(self.difference)
        if len(self.differences) > ALL_PAIRS:
            return self._summary(text)
        return "; ".join(
            f"{_pair_text(pair, difference)}: {text(difference)}"
            for pair, difference in self.differences.items()
        )

    def _summary(self, text: Callable[[Difference], str]) -> str:
        """The smallest and the largest of many differences, and how many are significant."""
        pairs = self.differences.items()
        known = [item for item in pairs if not isnan(item[1].value)] or [*pairs]
        ordered = sorted(known, key=lambda item: item[1].value)
        tested = [d for d in self.differences.values() if isfinite(d.low)]
        significant = sum(d.significant for d in tested)
        ends = " to ".join(
            f"{_pair_text(pair, difference)}: {text(difference)}"
            for pair, difference in (ordered[0], ordered[-1])
        )
        if not tested:
            return f"{ends}; none of {len(pairs)} has an interval"
        number = len(tested)
        which = "" if number == len(pairs) else " with an interval"
        return (
            f"{ends}; {significant} of {number}{which} significant, not adjusted for {number} "
            "comparisons"
        )


def images_of(rows: Sequence[Row]) -> str:
    """Number of images of the models, once if it is the same: ``84 – 256``."""
    numbers = dict.fromkeys(n for row in rows for n in row.images.values() if n)
    return f" {DASH} ".join(map(str, sorted(numbers)[:: max(len(numbers) - 1, 1)]))


def cell_text(answer: Answer) -> str:
    """An answer with its subject, what it means and why it has no interval, if so."""
    subject = f"{answer.subject}: " if answer.subject and not answer.measure else ""
    reading = f"{answer.reading}, " if answer.reading else ""
    return f"{subject}{reading}{answer}{missing_text(answer)}"


def _pair_text(pair: Pair, difference: Difference) -> str:
    """``second - first``; ``first and second`` of a number of both models."""
    return " and ".join(pair) if difference.form == "joint" else " - ".join(reversed(pair))


def findings_of(results: Iterable[Result]) -> list[Finding]:
    """What results say in sentences."""
    return [finding for result in results for finding in result.findings()]


def answers_of(results: Iterable[Result]) -> list[tuple[Answer, Result]]:
    """What results answer, each with its result."""
    return [(answer, result) for result in results for answer in result.answers()]


def comparison_rows(
    results: Mapping[str, Sequence[Result]],
    compared: Mapping[Pair, Sequence[Result]] = MappingProxyType({}),
) -> list[Row]:
    """A row for each quantity that any model answers, in the order of questions.

    Answers of several models are one row if they have one `Answer.id`. The rows of a question
    are in the order of results.
    """
    rows = []
    for measured in _by_id(results, undefined=False).values():
        cells = {name: answer for name, (answer, _) in measured.items()}
        first = next(iter(cells.values()))
        differences = {
            pair: difference
            for pair in pairs_of(tuple(results))
            if set(pair) <= set(cells)
            and (difference := _difference([measured[name] for name in pair])) is not None
        }
        images = {name: origin.images for name, (_, origin) in measured.items()}
        rows.append(Row(first.question, first.quantity, first.unit, cells, differences, images))
    rows += _joint_rows(compared)
    return sorted(rows, key=lambda row: place_of(row.question))


def _by_id(
    results: Mapping[Model, Sequence[Result]], *, undefined: bool
) -> dict[str, dict[Model, AnswerAndOrigin]]:
    """Answers with their origin, by identifier, then by model or pair."""
    by_id: dict[str, dict[Model, AnswerAndOrigin]] = {}
    for model, of_model in results.items():
        for answer, result in answers_of(of_model):
            if undefined or not isnan(answer.value):
                key = answer.id or f"{answer.question}: {answer.quantity}"
                by_id.setdefault(key, {})[model] = answer, result.provenance
    return by_id


def _difference(pair: Sequence[AnswerAndOrigin]) -> Difference | None:
    """The paired difference as it is read; a ratio of quantities that are averaged in logs.

    It is undefined where the quantity is in pixels of images of different sizes.
    """
    (first, origin), (second, other) = pair
    sizes = {tuple(shape[-2:]) for shape in (origin.image_shape, other.image_shape)}
    if first.in_pixels and len(sizes) > 1:
        text = " and ".join("x".join(map(str, size)) for size in sorted(sizes))
        reason = f"it depends on the size of the images, {text} pixels"
        return Difference(nan, nan, nan, over=first.over, missing=reason)
    number = paired_difference(first, second)
    if number is None:
        return None
    value, low, high = float(number), number.low, number.high
    form = "difference"
    if first.average == "geometric":
        value, low, high = exp(value), exp(low), exp(high)
        form = "ratio"
    return Difference(value, low, high, form, first.over, number.missing)


def _joint_rows(compared: Mapping[Pair, Sequence[Result]]) -> list[Row]:
    rows = []
    for measured in _by_id(compared, undefined=True).values():
        answer = next(answer for answer, _ in measured.values())
        differences = {
            pair: Difference(a.value, a.low, a.high, "joint", a.over, a.missing, a.reading)
            for pair, (a, _) in measured.items()
        }
        images = {
            name: origin.images for pair, (_, origin) in measured.items() for name in pair
        }
        rows.append(Row(answer.question, answer.quantity, answer.unit, {}, differences, images))
    return rows


def pairs_of(models: Sequence[Model]) -> list[tuple[Model, Model]]:
    """The pairs that are compared: all of up to 3 models, beyond that each with the first."""
    if len(models) <= ALL_PAIRS:
        return list(combinations(models, 2))
    return [(models[0], other) for other in models[1:]]
