"""Effects of the study of claims, with intervals over trained seeds."""

from math import exp, isfinite

import numpy as np

from visprism.estimates.findings import Finding
from visprism.estimates.text import resolved
from visprism.table.result import Result, column, result_type, scalar

PRIMARY, EQUAL_FIT, SECONDARY = "primary", "equal training NLL", "secondary"
RATIO, POINTS = "ratio", "points"


@result_type("claim-effects")
class ClaimEffects(Result):
    """The effect of each hypothesis of the claims; one row for each comparison.

    Effects are means over seeds of differences paired by seed, with Student's interval. Primary
    hypotheses have the confidence of Holm's procedure. Effects with the unit "ratio" are
    differences of logarithms, numbers as changes in percent.
    """

    row: np.ndarray = column("Row", "", "C1 to C16, with a letter where a claim has several")
    comparison: np.ndarray = column("Comparison", "", f"{PRIMARY}, {EQUAL_FIT} or {SECONDARY}")
    hypothesis: np.ndarray = column("Hypothesis", "", "networks that are compared, or 0")
    quantity: np.ndarray = column("Quantity", "", "what is compared, and when")
    sign: np.ndarray = column("Sign", "", "1 if the claim expects a positive effect, else -1")
    unit: np.ndarray = column("Unit", "", "ratio, points (of a fraction), nats or none")
    effect: np.ndarray = column("Effect", "", "mean of the paired differences over seeds")
    low: np.ndarray = column("Low", "", "lower end of the interval over seeds")
    high: np.ndarray = column("High", "", "upper end of the interval over seeds")
    confidence: np.ndarray = column("Confidence", "", "of the interval")
    seeds: np.ndarray = column("Seeds", "", "trained seeds of each network")
    margin: np.ndarray = column("Margin", "", "smallest effect that matters; 0: none declared")
    verdict: np.ndarray = column("Verdict", "", "empty for secondary hypotheses")
    seeds_needed: np.ndarray = column(
        "Seeds needed",
        "",
        "power of 80% for an effect of the margin; 0: decided, -1: over 1,000",
    )
    note: np.ndarray = column("Note", "", "such as a different verdict at equal training NLL")
    networks: np.ndarray = column("Networks", "", "test accuracy and training NLL of each")
    scale: str = scalar("Scale", "", "of networks and training", default="")

    def effect_text(self, row: int) -> str:
        """The effect with its interval: ``-12% [-15, -9]`` or ``+0.31 nats [0.2, 0.4]``."""
        values = (float(v[row]) for v in (self.effect, self.low, self.high))
        return self.text_of(*values, str(self.unit[row]))

    @classmethod
    def text_of(cls, effect: float, low: float, high: float, unit: str) -> str:
        """An effect with its interval; empty without an effect."""
        if not isfinite(effect):
            return ""
        numbers = [cls._in_unit(value, unit) for value in (effect, low, high)]
        form = resolved(*numbers, "+.3g")
        text = f"{numbers[0]:{form}}" + {RATIO: "%", "": ""}.get(unit, f" {unit}")
        if isfinite(low) and isfinite(high):
            text += f" [{numbers[1]:{form}}, {numbers[2]:{form}}]"
        return text.replace("-", "\N{MINUS SIGN}")

    def margin_text(self, row: int) -> str:
        """The margin with its unit: ``5 points`` or ``25%``."""
        unit = str(self.unit[row])
        suffix = {RATIO: "%", "": ""}.get(unit, f" {unit}")
        return f"{self._in_unit(float(self.margin[row]), unit):.3g}{suffix}"

    @staticmethod
    def _in_unit(value: float, unit: str) -> float:
        if unit == RATIO:
            return 100 * (exp(value) - 1) if isfinite(value) else value
        return 100 * value if unit == POINTS else value

    def findings(self) -> tuple[Finding, ...]:
        """Each primary hypothesis with its effect and verdict."""
        return tuple(
            Finding(
                f"{self.row[i]}, {self.quantity[i]}, {self.hypothesis[i]}: {self.verdict[i]}"
                + (f", {self.effect_text(i)} over {self.seeds[i]} seeds" * bool(self.seeds[i]))
            )
            for i in np.flatnonzero(self.comparison == PRIMARY).tolist()
        )
