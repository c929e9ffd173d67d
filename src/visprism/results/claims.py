"""Results of the study of claims: effects with intervals over trained seeds, and runs."""

from math import isfinite

import numpy as np

from visprism.estimates.findings import Finding
from visprism.estimates.text import resolved
from visprism.table.result import Result, column, result_type, scalar

PERCENT = "%"


@result_type("claim-effects")
class ClaimEffects(Result):
    """The effect of each hypothesis of the claims; one row for each hypothesis.

    Intervals are 95% intervals over trained seeds: Student's for one arm that is compared with
    0, Welch's for two arms. They are not adjusted for the number of hypotheses.
    """

    claim: np.ndarray = column("Claim", "", "C1 to C16")
    protocol: np.ndarray = column("Protocol", "", "hypotheses of one protocol hold together")
    quantity: np.ndarray = column("Quantity", "", "what is compared")
    treatment: np.ndarray = column("Arm", "", "networks that the hypothesis is about")
    control: np.ndarray = column("Compared with", "", "another arm; '' for 0")
    direction: np.ndarray = column("Expected", "", "lower or higher than the other arm or 0")
    unit: np.ndarray = column(
        "Unit", "", "'ratio': effect and interval are those of a ratio - 1"
    )
    effect: np.ndarray = column("Effect", "", "difference of means over seeds, or ratio - 1")
    low: np.ndarray = column("Low", "", "lower end of the 95% interval over seeds")
    high: np.ndarray = column("High", "", "upper end of the 95% interval over seeds")
    seeds: np.ndarray = column("Seeds", "", "of the arm")
    control_seeds: np.ndarray = column("Seeds, compared", "", "of the other arm; 0 without one")
    verdict: np.ndarray = column("Verdict", "", "supported, contradicted or undecided")
    reason: np.ndarray = column("Reason", "", "for the verdict")
    seeds_to_decide: np.ndarray = column(
        "Seeds to decide", "", "of each arm; 0: decided, -1: not known or more than 1,000"
    )
    scale: str = scalar("Scale", "", "of networks and training", default="")

    def effect_text(self, row: int) -> str:
        """The effect with its interval: ``-12% [-15%, -9%]`` or ``0.31 nats [0.2, 0.4]``."""
        unit = str(self.unit[row])
        scale = 100 if unit in (PERCENT, "ratio") else 1
        value, low, high = (scale * float(v[row]) for v in (self.effect, self.low, self.high))
        form = resolved(value, low, high, "+.3g")
        suffix = {PERCENT: " points", "ratio": "%", "": ""}.get(unit, f" {unit}")
        text = f"{value:{form}}{suffix}"
        if isfinite(low) and isfinite(high):
            text += f" [{low:{form}}, {high:{form}}]"
        return text

    def hypothesis_text(self, row: int) -> str:
        """``vit lower than cnn``."""
        return f"{self.treatment[row]} {self.direction[row]} than {self.control[row] or '0'}"

    def findings(self) -> tuple[Finding, ...]:
        """Each hypothesis with its effect and verdict."""
        return tuple(
            Finding(
                f"{self.claim[i]}, {self.quantity[i]}: {self.hypothesis_text(i)}: "
                f"{self.verdict[i]}, effect {self.effect_text(i)} over {self._seeds(i)} seeds"
            )
            for i in range(len(self))
        )

    def _seeds(self, row: int) -> str:
        other = int(self.control_seeds[row])
        return f"{self.seeds[row]} and {other}" if other else str(self.seeds[row])


@result_type("claim-runs")
class ClaimRuns(Result):
    """The trained networks of the claims; one row for each run."""

    run: np.ndarray = column("Run", "", "folder of the run")
    arm: np.ndarray = column("Arm", "", "network and what its training varies")
    seed: np.ndarray = column("Seed", "", "of weights, training images and augmentation")
    images: np.ndarray = column("Training images", "", "number of them")
    epochs: np.ndarray = column("Epochs", "", "of training")
    minutes: np.ndarray = column("Time", "min", "of training, with its evaluations")
    accuracy: np.ndarray = column("Test accuracy", "", "at the end of training")
    low: np.ndarray = column("Low", "", "lower end of the 95% interval over test images")
    high: np.ndarray = column("High", "", "upper end of the 95% interval over test images")

    def findings(self) -> tuple[Finding, ...]:
        """How many networks were trained, and for how long."""
        hours = float(self.minutes.sum()) / 60
        return (Finding(f"{len(self)} networks were trained in {hours:.1f} hours"),)
