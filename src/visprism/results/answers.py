"""Answers: the few numbers of a result that models are compared by."""

from dataclasses import dataclass
from math import isfinite, nan
from typing import Literal

from visprism.results.text import resolved

POINTS = "percentage points"  # unit of a difference of two fractions
# In the reading of an answer without a verdict.
DISAGREE, ONE_MEASURE = "the measures disagree", "only one measure is significant"
Verdict = Literal["", "supports", "contradicts", "undecided"]
Average = Literal["arithmetic", "geometric"]


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
    claim: str = ""  # "C6": the claim of the paper that the question belongs to
    verdict: Verdict = ""  # about that claim
    # Place that a claim about two models expects: the model with the lower place should have
    # the lower value. NaN where the claim says nothing about the model.
    place: float = nan
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

    def __str__(self) -> str:
        """The number, which is named if it is a selected maximum.

        For example ``2 [1, 3] (largest of 9, interval not adjusted)``.
        """
        adjusted = "interval not adjusted" if isfinite(self.low) else ""
        remark = ", ".join(filter(None, (self.selection, adjusted)))
        return f"{self.number} ({remark})" if self.selection else self.number

    @property
    def selection(self) -> str:
        """Of how many values it is the largest; "" if it is not selected."""
        if self.selected < 2:
            return ""
        rest = f"; {self.left_out} cannot be ablated" if self.left_out else ""
        return f"largest of {self.selected}{rest}"

    @property
    def number(self) -> str:
        """Value and interval: ``93.1% [92.6%, 93.6%]`` or ``0.5 nats [0.4, 0.6]``."""
        scale = 100 if self.unit in ("%", POINTS) else 1
        unit = self.unit if self.unit in ("", "%") else f" {self.unit}"
        value, low, high = (scale * number for number in (self.value, self.low, self.high))
        form = resolved(value, low, high, ".3g")
        if not (isfinite(low) and isfinite(high)):
            return f"{value:{form}}{unit}"
        percent = "%" if self.unit == "%" else ""
        interval = f"[{low:{form}}{percent}, {high:{form}}{percent}]"
        return f"{value:{form}}{unit} {interval}"
