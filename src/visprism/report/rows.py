"""The table of a study: one row per quantity, an answer of each model, and their difference.

Exports and pages show these rows.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import exp, isclose, isfinite, isnan, log, nan
from types import MappingProxyType
from typing import Literal, TypeVar

from visprism.core.provenance import Provenance
from visprism.core.statistics import holm, interval_tails
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

_TINY = 1e-300  # of a lower end of 0, whose logarithm is taken
SIGNIFICANT, EQUAL = 0.05, 0.025  # adjusted p-values; of one pair: its 95% interval decides
MARGINS = {"%": 0.01, POINTS: 0.01, "nats": 0.02}  # of a difference that does not matter
_WITH_MARGIN = ("accuracy", "calibration", "robustness")  # topics
_MOST_TOGETHER = 6  # models, up to which every pair is measured together; pairs in one text


@dataclass(frozen=True)
class Difference:
    """The paired difference of two models in one quantity.

    Relative changes that are averaged in logs (`Answer.average` "geometric") are compared by
    their ratio, (1 + change of the second model) / (1 + change of the first): exp of the paired
    difference of the logs. The form "joint" is one number of both models, such as the
    consistency of their errors.

    Both p-values are adjusted by Holm's method over all pairs of models of the row. With one
    pair, the 95% interval decides: models differ if it excludes 0, and are equal if it lies
    within the margin.
    """

    value: float  # second model less first, the ratio, or the number of both models
    low: float  # 95% interval; NaN where there is none
    high: float
    form: Form = "difference"
    over: str = "images"  # what the interval is taken over
    missing: str = ""  # why there is no interval
    reading: str = ""  # of a number of both models: what it means in words
    units: int = 0  # pairs of values that the interval is taken over
    margin: float = nan  # differences up to it do not matter; a relative one of a ratio
    same: bool = False  # both names stand for the same network
    pairs: int = 1  # pairs of models that the p-values are adjusted for
    p_different: float = nan  # of the hypothesis that the models do not differ
    p_equal: float = nan  # of the hypothesis that they differ by more than the margin

    @property
    def null(self) -> float:
        """The value where the models do not differ."""
        return 1.0 if self.form == "ratio" else 0.0

    @property
    def significant(self) -> bool:
        """Whether the models differ, adjusted for all pairs of models."""
        return not self.same and self.p_different < SIGNIFICANT

    @property
    def equal(self) -> bool:
        """Whether the models differ by at most the margin, or are the same network."""
        return self.same or self.p_equal < EQUAL

    @property
    def remark(self) -> str:
        """What the difference says in words; empty if the models differ."""
        if self.same:
            return "equal: the same network"
        if isnan(self.value):
            return self.missing
        if not isfinite(self.low):
            return f"no interval: {self.missing}" if self.missing else "no interval"
        if self.significant:
            return ""
        if self.form == "joint":
            return "not significant"
        return f"equal within {self.margin_text}" if self.equal else "no difference found"

    @property
    def margin_text(self) -> str:
        """The margin with its unit: ``1 point``, ``0.02 nats``, ``5%``."""
        if self.form == "ratio":
            return f"{100 * self.margin:g}%"
        unit = next((unit for unit, margin in MARGINS.items() if margin == self.margin), "")
        return f"{self.margin:g} nats" if unit == "nats" else f"{100 * self.margin:g} point"

    @property
    def enough(self) -> float:
        """Images at which the interval is as wide as the margin, and always decides.

        It then either excludes 0 or lies within the margin. NaN without a margin.
        """
        if self.over != "images" or not self.units:
            return nan
        return self.units * ((self.high - self.low) / self.margin) ** 2

    def judged(self, margin: float) -> "Difference":
        """The difference with its margin and its p-values, not yet adjusted."""
        numbers = self.value, self.low, self.high
        if self.same or not all(map(isfinite, numbers)):
            return replace(self, margin=margin)
        bounds = [self.null, self.null - margin, self.null + margin]
        if self.form == "ratio":
            inverse = 1 / (1 + margin)
            numbers = log(self.value), log(max(self.low, _TINY)), log(self.high)
            bounds = [0.0, log(inverse), -log(inverse)]
        many = self.over == "images"
        none, below, above = interval_tails(*numbers, bounds, 0 if many else self.units)
        value, inside = numbers[0], nan
        if isfinite(margin):
            inside = max(below, above) if bounds[1] < value < bounds[2] else 1.0
        return replace(self, margin=margin, p_different=2 * none, p_equal=inside)

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
            return f"ratio {number}" if unit != "%" else f"ratio of 1 + change {number}"
        points = POINTS if unit == "%" else unit
        return str(Answer("", "", self.value, self.low, self.high, points))


def adjusted(differences: Mapping[Pair, Difference]) -> dict[Pair, Difference]:
    """Differences of all pairs of models, with p-values adjusted over the pairs."""
    different = holm([d.p_different for d in differences.values()])
    equal = holm([d.p_equal for d in differences.values()])
    pairs = sum(isfinite(p) for p in different)
    return {
        pair: replace(d, p_different=p, p_equal=q, pairs=pairs)
        for (pair, d), p, q in zip(differences.items(), different, equal, strict=True)
    }


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
    id: str = ""  # `Answer.id` of its answers

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
        if len(self.differences) > _MOST_TOGETHER:
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
        which = "" if len(tested) == len(pairs) else " with an interval"
        return f"{ends}; {significant} of {len(tested)}{which} significant (Holm)"


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
    same: Collection[Pair] = (),
) -> list[Row]:
    """A row for each quantity that any model answers, in the order of questions.

    Answers of several models are one row if they have one `Answer.id`. The rows of a question
    are in the order of results. Every pair of models has its difference, which no other model
    changes; the p-values are adjusted over all pairs.

    Args:
        results: by model.
        compared: results about two models together.
        same: pairs of names of the same network.
    """
    rows = []
    for key, measured in _by_id(results, undefined=False).items():
        cells = {name: answer for name, (answer, _) in measured.items()}
        first = next(iter(cells.values()))
        differences = {}
        for pair in combinations(cells, 2):
            difference = _difference([measured[name] for name in pair], same=pair in same)
            if difference is not None:
                differences[pair] = difference.judged(margin_of(first))
        images = {name: origin.images for name, (_, origin) in measured.items()}
        rows.append(
            Row(
                first.question,
                first.quantity,
                first.unit,
                cells,
                adjusted(differences),
                images,
                id=key,
            )
        )
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
                by_id.setdefault(answer.id, {})[model] = answer, result.provenance
    return by_id


def margin_of(answer: Answer) -> float:
    """Differences of a quantity up to this one do not matter; NaN where none is declared."""
    margin = MARGINS.get(answer.unit, nan)
    return margin if question_of(answer.question).topic in _WITH_MARGIN else nan


def _difference(pair: Sequence[AnswerAndOrigin], *, same: bool) -> Difference | None:
    """The paired difference as it is read; a ratio of quantities that are averaged in logs.

    It is undefined where the quantity is in pixels of images of different sizes.
    """
    (first, origin), (second, other) = pair
    sizes = {tuple(shape[-2:]) for shape in (origin.image_shape, other.image_shape)}
    if first.in_pixels and len(sizes) > 1:
        text = " and ".join("x".join(map(str, size)) for size in sorted(sizes))
        reason = f"it depends on the size of the images, {text} pixels"
        return Difference(nan, nan, nan, over=first.over, missing=reason)
    same = same and isclose(first.value, second.value, rel_tol=1e-5, abs_tol=1e-9)
    number = paired_difference(first, second)
    if number is None and not same:
        return None
    value, low, high, missing, units = second.value - first.value, nan, nan, "", 0
    if number is not None:
        value, low, high, missing = float(number), number.low, number.high, number.missing
        units = 0 if number.by_unit is None else len(number.by_unit)
    form = "difference"
    if first.average == "geometric" and number is not None:
        value, low, high = exp(value), exp(low), exp(high)
        form = "ratio"
    return Difference(value, low, high, form, first.over, missing, units=units, same=same)


def _joint_rows(compared: Mapping[Pair, Sequence[Result]]) -> list[Row]:
    rows = []
    for key, measured in _by_id(compared, undefined=True).items():
        answer = next(answer for answer, _ in measured.values())
        differences = {
            pair: Difference(
                a.value, a.low, a.high, "joint", a.over, a.missing, a.reading
            ).judged(nan)
            for pair, (a, _) in measured.items()
        }
        images = {
            name: origin.images for pair, (_, origin) in measured.items() for name in pair
        }
        row = Row(answer.question, answer.quantity, answer.unit, {}, adjusted(differences))
        rows.append(replace(row, images=images, id=key))
    return rows


def pairs_of(models: Sequence[Model]) -> list[tuple[Model, Model]]:
    """The pairs that are measured together: all of up to 6 models, then each with the first.

    Pairs are compared by the results of each model, whatever their number.
    """
    if len(models) <= _MOST_TOGETHER:
        return list(combinations(models, 2))
    return [(models[0], other) for other in models[1:]]
