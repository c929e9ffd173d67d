"""Answers: the few numbers of a result that models are compared by.

A quantity is declared once, by an `EstimateInfo` in the field of a result; an `Answer` is its
value for one model. Answers of two models are paired by `Answer.id`, never by their wording.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, isfinite, isnan, nan
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float

from visprism.core.statistics import (
    FEWEST_DIFFERENT,
    FEWEST_VALUES,
    correlation,
    difference_interval,
    mean_interval,
    paired_proportions_interval,
    t_interval,
)
from visprism.estimates.estimated import Number, Reduce
from visprism.estimates.questions import Question
from visprism.estimates.text import resolved

POINTS = "percentage points"  # unit of a difference of two fractions
# In the reading of an answer that several measures decide.
DISAGREE, ONE_MEASURE = "the measures disagree", "only one measure is significant"
DIRECTION_PAIRS = "direction pairs"  # of a loss landscape
FEWEST_BATCHES = 5
# Units for an interval; `FEWEST_VALUES` of others.
FEWEST = {DIRECTION_PAIRS: 3, "batches": FEWEST_BATCHES}
Average = Literal["arithmetic", "geometric"]
# Interval of the difference of two models: from the mean of paired differences; from both
# intervals and the correlation of the values by unit (Zou and Donner), 0 if they are
# independent; none. "bounded": combined, if the lower end of a model may be exactly 0.
Comparison = Literal["paired", "combined", "bounded", "independent", "none"]
AnsweredRow = Literal["each", "last", "mean over blocks"]


@dataclass(frozen=True)
class Answer:
    """One number with its 95% interval, as an answer to one question about a model.

    Models are compared by the answers that have the same question and quantity.
    """

    question: str  # text of a `Question`; one entry of the table of a study
    quantity: str  # "high-frequency log amplitude, change across attention blocks"
    value: float
    low: float = nan  # 95% interval; NaN where there is none
    high: float = nan
    unit: str = ""  # "%": fractions, shown as percent; POINTS: differences of two fractions
    over: str = ""  # what the interval is taken over: "images", "mini-batches", "seeds"
    # "geometric": exp(mean of logs) - 1, the relative change by the geometric mean of ratios
    average: Average = "arithmetic"
    missing: str = ""  # why there is no interval
    in_pixels: bool = False  # whether it depends on the size of the images in pixels
    selected: int = 1  # number of values of which this is the largest; 1 if it is not selected
    left_out: int = 0  # number of those that could not be measured
    symbol: str = ""  # of the quantity, before the number in sentences: "NEP"
    subject: str = ""  # part of the model that the number is of: "conv blocks", "layer1.0"
    measure: str = ""  # the quantity without the subject; "" where it does not name the subject
    reading: str = ""  # what the number means, in words: "low-pass"
    variant: str = ""  # end of the quantity that is not another measure, such as an objective
    outcome: str = "accuracy"  # what the task of the model calls it
    id: str = ""  # of the quantity, whatever it is called: "variances.variance"
    comparison: Comparison = "paired"  # how the interval of a difference is made
    by_unit: np.ndarray | None = field(
        default=None, repr=False, compare=False
    )  # see `Estimated`

    def __post_init__(self) -> None:
        if not self.id:  # made by hand
            object.__setattr__(self, "id", f"{self.question}: {self.quantity}")

    def __str__(self) -> str:
        """The number, which is named if it is a selected maximum.

        For example ``2 [1, 3] (largest of 9, interval not adjusted)``.
        """
        adjusted = "interval not adjusted" if isfinite(self.low) else ""
        remark = ", ".join(filter(None, (self.selection, adjusted)))
        return f"{self.number} ({remark})" if self.selection else self.number

    @property
    def selection(self) -> str:
        """The number of values among which it is the largest; "" if it is not selected."""
        if self.selected < 2:
            return ""
        rest = f"; {self.left_out} cannot be ablated" if self.left_out else ""
        return f"largest of {self.selected}{rest}"

    @property
    def scaled(self) -> tuple[float, float, float]:
        """Value and ends as text has them: fractions in percent."""
        scale = 100 if self.unit in ("%", POINTS) else 1
        return scale * self.value, scale * self.low, scale * self.high

    @property
    def number(self) -> str:
        """Value and interval: ``93.1% [92.6%, 93.6%]`` or ``0.5 nats [0.4, 0.6]``."""
        unit = self.unit if self.unit in ("", "%") else f" {self.unit}"
        value, low, high = self.scaled
        form = resolved(value, low, high, ".3g")
        if not (isfinite(low) and isfinite(high)):
            return f"{value:{form}}{unit}"
        percent = "%" if self.unit == "%" else ""
        interval = f"[{low:{form}}{percent}, {high:{form}}{percent}]"
        return f"{value:{form}}{unit} {interval}"

    def sentence(self, units: str) -> str:
        """Quantity, number, what it is measured over, and what it means."""
        if isnan(self.value):
            return f"{self.quantity} undefined over {units}: {self.missing}"
        missing = self.missing and not isfinite(self.low)
        reason = f" (no interval: {self.missing})" if missing else ""
        words = self.reading or ("not significant" if self.low <= 0 <= self.high else "")
        meaning = f", {words}" if words else ""
        return f"{self.quantity}: {self.number}{reason} over {units}{meaning}"


@dataclass(frozen=True)
class EstimateInfo:
    """The declaration of a quantity, from which its answers and differences follow."""

    label: str
    unit: str = ""  # "%": fractions, shown as percent; POINTS: differences of two fractions
    meaning: str = ""
    question: Question | None = None  # that it answers; None: it is only tabulated
    over: str = "images"
    average: Average = "arithmetic"
    in_pixels: bool = False
    symbol: str = ""
    comparison: Comparison = "paired"
    keep: bool = False  # results keep the values by unit, also without a question
    reduce: Reduce = Reduce.MEAN  # from values by unit to the number
    row: AnsweredRow = "each"  # which rows of a column answer the question

    def answer(self, id: str, value: Any, rows: Sequence[str] = (), **further: Any) -> Answer:
        """The answer of one model."""
        low, high = getattr(value, "low", nan), getattr(value, "high", nan)
        by_unit = getattr(value, "by_unit", None)
        missing = getattr(value, "missing", "")
        if not isfinite(low) and not missing and by_unit is not None:
            missing = reason_without(by_unit, self.over)
        numbers = (float(value), low, high)
        if self.average == "geometric":
            numbers = tuple(exp(number) - 1 for number in numbers)
        same = ("unit", "over", "average", "in_pixels", "symbol", "comparison")
        fields: dict[str, Any] = {name: getattr(self, name) for name in same} | {
            "quantity": ", ".join([self.label, *rows]),
            "measure": self.label if rows else "",
            "missing": missing,
            "id": id,
            "by_unit": by_unit,
        }
        question = self.question.text if self.question else ""
        value, low, high = numbers
        return Answer(question, value=value, low=low, high=high, **(fields | further))


def reason_without(by_unit: np.ndarray, over: str) -> str:
    """Why the mean of these values has no interval."""
    finite = by_unit[np.isfinite(by_unit)]
    fewest = FEWEST.get(over, FEWEST_VALUES)
    if len(finite) == 1:
        return f"only one of the {over}" if over != "images" else "a single image"
    if len(finite) < fewest:
        return f"fewer than {fewest} {over}"
    if not np.ptp(finite):
        return f"the same value for all {over}"
    return f"fewer than {FEWEST_DIFFERENT} {over} differ from the median"


def few_outcomes(correct: Bool[np.ndarray, " n"]) -> str:
    """Why a mean of losses has no interval; "" from 5 correct and 5 wrong predictions.

    A few predictions that differ from all others make most of the variance of such a mean, and
    how many there are is a matter of chance.

    Example:
        >>> few_outcomes(np.ones(256, dtype=bool)), few_outcomes(np.arange(10) < 5)
        ('fewer than 5 predictions are wrong', '')
    """
    for word, number in (("correct", correct.sum()), ("wrong", (~correct).sum())):
        if number < FEWEST_DIFFERENT:
            return f"fewer than {FEWEST_DIFFERENT} predictions are {word}"
    return ""


def mean_loss(losses: Float[np.ndarray, " n"], correct: Float[np.ndarray, " n"]) -> Number:
    """A mean loss; no interval for fewer than 5 correct or 5 wrong predictions."""
    few = few_outcomes(correct.astype(bool))
    ends = (nan, nan) if few else mean_interval(losses)
    if not few and np.isnan(ends[0]):
        few = f"fewer than {FEWEST_VALUES} images"
    return Number(losses.mean(dtype=np.float64), *ends, losses, few)


# Differences of two models in one quantity, on the same images.


def difference(first: Answer, second: Answer) -> Number | None:
    """Second minus first, with its 95% interval; None where the two have no common units.

    Means are paired: with d_i = second_i - first_i over n common units, the difference is
    mean(d), and its interval `mean_interval`'s. If all values are 0 or 1, it is Bonett and
    Price's, which does not shrink to a point when the models agree on every image; for pairs of
    random directions it is Student's. With the comparison "combined" the interval
    follows from both intervals and the correlation of the values by unit (Zou and Donner), and
    with "independent" only from both intervals. Answers of geometric means are differences of
    logs.

    Sources: Bonett and Price (2012), Adjusted Wald confidence interval for a difference of
    binomial proportions based on paired data; Zou and Donner (2008), Construction of confidence
    limits about effect measures.
    """
    a, b = first.by_unit, second.by_unit
    if a is None or b is None or first.comparison == "none":
        return None
    missing = next((x.missing for x in (first, second) if x.missing), "")
    if first.comparison == "independent":
        one, two = ((x.value, x.low, x.high) for x in (first, second))
        ends = (nan, nan) if missing else difference_interval(one, two, (0.0, 0.0))
        return Number(second.value - first.value, *ends, missing=missing)
    n = min(len(a), len(b))
    a, b = (values[:n].astype(np.float64) for values in (a, b))
    both = np.isfinite(a) & np.isfinite(b)
    a, b = a[both], b[both]
    if not len(a):
        return None
    by_unit = b - a
    if missing:
        return Number(by_unit.mean(), by_unit=by_unit, missing=missing)
    if first.comparison in ("combined", "bounded"):
        ends = _combined(first, second, a, b)
    else:
        ends = _paired(a, b, first.over)
    missing = "" if isfinite(ends[0]) else reason_without(by_unit, first.over)
    return Number(by_unit.mean(), *ends, by_unit, missing)


def _paired(
    a: Float[np.ndarray, " n"], b: Float[np.ndarray, " n"], over: str
) -> tuple[float, float]:
    differences, n = b - a, len(a)
    if over in FEWEST:  # means over random directions are close to normal
        if n < FEWEST[over]:
            return nan, nan
        error = float(differences.std(ddof=1)) / n**0.5
        return t_interval(float(differences.mean()), error, n)
    if np.isin(a, (0, 1)).all() and np.isin(b, (0, 1)).all():
        gained, lost = int((differences > 0).sum()), int((differences < 0).sum())
        return paired_proportions_interval(gained, lost, n)
    return mean_interval(differences)


def _combined(
    first: Answer, second: Answer, a: Float[np.ndarray, " n"], b: Float[np.ndarray, " n"]
) -> tuple[float, float]:
    pair = [(x.value, x.low, x.high) for x in (first, second)]
    if not np.isfinite(pair).all():
        return nan, nan
    r = correlation(a, b)
    correlations = (r, r)
    if first.comparison == "bounded":
        # Where the lower end of a model is 0, its estimate is too large on average and not
        # normal; a correlation of -1 is taken at that end.
        correlations = (r if second.low > 0 else -1.0, r if first.low > 0 else -1.0)
    return difference_interval(pair[0], pair[1], correlations)
