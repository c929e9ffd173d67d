"""Decision rules: what values of networks, replicated over seeds, say about a hypothesis."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, isfinite, nan
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from visprism.core.errors import InputError

Verdict = Literal["supported", "contradicted", "undecided"]
Direction = Literal["lower", "higher"]

FEWEST_SEEDS = 2  # of each arm, for an interval
MOST_SEEDS = 1000  # beyond which a search for a sufficient number of seeds ends
_LEVEL = 0.95


@dataclass(frozen=True)
class Decision:
    """The effect with its interval over seeds, and the verdict that follows from it."""

    effect: float  # difference of means over seeds, or ratio of geometric means minus 1
    low: float  # 95% interval over seeds; NaN with fewer than 2 seeds of an arm
    high: float
    verdict: Verdict
    seeds: tuple[int, ...]  # number of seeds of each arm
    reason: str  # a sentence
    # Seeds of each arm with which an effect of this size and spread would be significant;
    # 0 for a decided one, -1 if more than 1,000 or if the spread is not known.
    seeds_to_decide: int = 0


def decide(
    treatment: Sequence[float] | np.ndarray,
    control: Sequence[float] | np.ndarray | None,
    direction: Direction,
    *,
    logarithm: bool = False,
) -> Decision:
    """Decide whether the mean of `treatment` is below or above that of `control`, or 0.

    The hypothesis is supported if the 95% interval of the difference of means lies on the side
    that `direction` names, contradicted if it lies on the other side, and undecided if it
    contains 0. The interval is Student's for one arm, and that of Welch for two, whose networks
    are trained independently. Seeds that all give one value have no interval. With `logarithm`,
    values are compared by their logarithms; effect and interval are then those of the ratio
    minus 1.

    Args:
        treatment: a value for each seed.
        control: a value for each seed; None to compare with 0.
        direction: of the treatment relative to the control.
        logarithm: whether values are compared by their ratio; they must be positive.

    Source: Welch (1947), The generalization of Student's problem when several different
    population variances are involved.

    Example:
        >>> decide([1.0, 1.1, 0.9], [2.0, 2.1, 1.9], "lower").verdict
        'supported'
    """
    arms = [np.asarray(treatment, float)] + [np.asarray(control, float)] * (control is not None)
    if not all(len(values) for values in arms):
        raise InputError("each arm must have at least one value, got an arm without any")
    if logarithm and control is None:
        raise InputError("logarithm must be false without a control")
    seeds = tuple(len(values) for values in arms)
    invalid = [
        v for values in arms for v in values if not isfinite(v) or (logarithm and v <= 0)
    ]
    if invalid:
        needed = "positive and finite" if logarithm else "finite"
        reason = f"a value is not {needed}: {invalid[0]:g}"
        return Decision(nan, nan, nan, "undecided", seeds, reason, -1)
    if logarithm:
        arms = [np.log(values) for values in arms]
    difference = float(arms[0].mean()) - (float(arms[1].mean()) if len(arms) > 1 else 0.0)
    effect = exp(difference) - 1 if logarithm else difference
    if min(seeds) < FEWEST_SEEDS:
        reason = (
            f"an interval needs at least {FEWEST_SEEDS} seeds of each arm, got {min(seeds)}"
        )
        return Decision(effect, nan, nan, "undecided", seeds, reason, -1)
    margin = _margin(arms, seeds)
    if margin == 0:
        reason = "the seeds of each arm give one value, from which no spread can be estimated"
        return Decision(effect, nan, nan, "undecided", seeds, reason, -1)
    low, high = difference - margin, difference + margin
    sign = -1 if direction == "lower" else 1
    if sign * difference > margin:
        verdict, reason = "supported", "the interval lies on the side of the claim"
    elif sign * difference < -margin:
        verdict, reason = "contradicted", "the interval lies on the other side of 0"
    else:
        verdict, reason = "undecided", "the interval contains 0"
    missing = _seeds_to_decide(arms, difference) if verdict == "undecided" else 0
    if missing:
        count = (
            f"{missing} seeds of each arm" if missing > 0 else f"more than {MOST_SEEDS} seeds"
        )
        reason += f"; with this effect and spread, {count} would decide"
    if logarithm:
        low, high = exp(low) - 1, exp(high) - 1
    return Decision(effect, low, high, verdict, seeds, reason, missing)


def _margin(arms: Sequence[np.ndarray], seeds: Sequence[int]) -> float:
    """Half the width of the interval, from the number of seeds and the variance of each arm."""
    return float(_margins(arms, np.array(seeds)[:, None])[0])


def _margins(
    arms: Sequence[np.ndarray], seeds: Int[np.ndarray, "arms n"]
) -> Float[np.ndarray, " n"]:
    """`_margin` for several numbers of seeds; 0 where no arm has any spread."""
    from scipy.stats import t

    # A mean that is rounded gives equal values a variance above 0.
    parts = np.array([[a.var(ddof=1) if np.ptp(a) else 0.0] for a in arms]) / seeds
    total = parts.sum(axis=0)
    if not total.all():
        return np.zeros(len(total))
    freedom = total**2 / (parts**2 / (seeds - 1)).sum(axis=0)
    return t.ppf((1 + _LEVEL) / 2, freedom) * np.sqrt(total)


def _seeds_to_decide(arms: Sequence[np.ndarray], difference: float) -> int:
    """The smallest number of seeds of each arm whose margin is below the difference."""
    counts = np.arange(max(len(values) for values in arms) + 1, MOST_SEEDS + 1)
    sufficient = _margins(arms, np.tile(counts, (len(arms), 1))) < abs(difference)
    return int(counts[sufficient.argmax()]) if sufficient.any() else -1


def joint(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict on a claim of several hypotheses, which holds if every one of them holds."""
    if "contradicted" in verdicts:
        return "contradicted"
    return "supported" if set(verdicts) == {"supported"} else "undecided"
