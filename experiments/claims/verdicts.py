"""Verdicts: rules of protocol P16, written on 2026-11-25, before the runs that they decide.

Effects are paired by seed. A primary hypothesis has one of four verdicts, is preliminary with
fewer seeds than the rules ask for, or is not run. The rules are the same at every scale (P17).
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite, nan
from typing import Literal

import numpy as np
from jaxtyping import Float

Verdict = Literal[
    "reproduced at this scale",
    "opposite at this scale",
    "no effect beyond the margin",
    "can't tell",
    "preliminary",
    "not run",
]
REPRODUCED: Verdict = "reproduced at this scale"
OPPOSITE: Verdict = "opposite at this scale"
NO_EFFECT: Verdict = "no effect beyond the margin"
CANT_TELL: Verdict = "can't tell"
PRELIMINARY: Verdict = "preliminary"
NOT_RUN: Verdict = "not run"
FEWEST_SEEDS = 5
MOST_SEEDS = 1000  # beyond which the search for a sufficient number of seeds ends
_ALPHA, _POWER = 0.05, 0.8


@dataclass(frozen=True)
class Decision:
    """The mean effect over seeds with its interval, and the verdict that follows from it."""

    effect: float
    low: float  # interval at `confidence`; NaN without one
    high: float
    seeds: int
    p: float = nan  # two-sided, of no effect; not adjusted
    confidence: float = 1 - _ALPHA
    verdict: Verdict = NOT_RUN
    # Seeds for a power of 80% for a true effect of the margin; 0: not needed, -1: more
    # than 1,000 or no spread.
    seeds_needed: int = 0
    seeds_needed_observed: int = 0  # the same, for a true effect equal to the observed one
    below_margin: bool = False  # whether the 90% interval lies within the margin


def estimate(effects: Sequence[float] | np.ndarray, confidence: float = 0.95) -> Decision:
    """The mean over seeds with Student's interval, without a verdict.

    Effects of one seed, or that are all equal, have no interval.
    """
    values = np.asarray(effects, float)
    n = len(values)
    if n < 2 or not np.isfinite(values).all() or np.ptp(values) == 0:
        return Decision(float(values.mean()) if n else nan, nan, nan, n, confidence=confidence)
    from scipy.special import stdtr, stdtrit

    mean, error = float(values.mean()), float(values.std(ddof=1)) / n**0.5
    half = float(stdtrit(n - 1, (1 + confidence) / 2)) * error
    p = 2 * float(stdtr(n - 1, -abs(mean) / error))
    return Decision(mean, mean - half, mean + half, n, p, confidence)


def decide(
    effects: Sequence[float] | np.ndarray,
    margin: float,
    *,
    sign: int = 1,
    confidence: float = 0.95,
    fewest_seeds: int = FEWEST_SEEDS,
) -> Decision:
    """The verdict on one hypothesis from the effect of each seed.

    *Reproduced* if the interval of the mean lies on the side of the claim, *opposite* if it
    lies on the other side, *no effect beyond the margin* if the 90% interval lies within
    ± margin (two one-sided tests at 5%), and otherwise *can't tell*.

    Args:
        effects: paired differences, one for each seed.
        margin: smallest effect that matters.
        sign: of an effect on the side of the claim.
        confidence: of the interval; 0.95 for a single hypothesis, see `decide_all`.
        fewest_seeds: below which there is no verdict: the 95% interval of two or more seeds is
            preliminary.

    Source: Schuirmann (1987), A comparison of the two one-sided tests procedure and the power
    approach for assessing the equivalence of average bioavailability.

    Example:
        >>> decide([-0.5, -0.6, -0.4, -0.5, -0.55], margin=0.1, sign=-1).verdict
        'reproduced at this scale'
    """
    if len(effects) < fewest_seeds:
        few = estimate(effects)
        return replace(few, verdict=PRELIMINARY) if isfinite(few.low) else few
    estimated = estimate(effects, confidence)
    if not isfinite(estimated.low):
        return replace(estimated, verdict=CANT_TELL, seeds_needed=-1, seeds_needed_observed=-1)
    narrow = estimate(effects, 1 - 2 * _ALPHA)
    within = -margin < narrow.low and narrow.high < margin
    if estimated.low > 0 or estimated.high < 0:
        verdict = REPRODUCED if sign * estimated.effect > 0 else OPPOSITE
    else:
        verdict = NO_EFFECT if within else CANT_TELL
    needed = observed = 0
    if verdict == CANT_TELL:
        spread = float(np.std(np.asarray(effects, float), ddof=1))
        needed, observed = (
            seeds_needed(size / spread, 1 - confidence, estimated.seeds)
            for size in (margin, abs(estimated.effect))
        )
    return replace(
        estimated,
        verdict=verdict,
        seeds_needed=needed,
        seeds_needed_observed=observed,
        below_margin=within,
    )


def unstable(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether the mean effects of two scales have different signs and differ at 5%.

    Source: Welch (1947), The generalization of "Student's" problem when several different
    population variances are involved.
    """
    if min(len(one), len(other)) < 2 or one.mean() * other.mean() >= 0:
        return False
    from scipy.stats import ttest_ind

    return bool(ttest_ind(one, other, equal_var=False).pvalue < _ALPHA)


def seeds_needed(ratio: float, alpha: float, seeds: int) -> int:
    """The fewest seeds, more than `seeds`, that find an effect of `ratio` spreads with 80%."""
    from scipy.special import nctdtr, stdtrit

    def power(n: int) -> float:
        return 1 - nctdtr(n - 1, ratio * n**0.5, stdtrit(n - 1, 1 - alpha / 2))

    numbers = range(seeds + 1, MOST_SEEDS + 1)
    position = bisect_left(numbers, _POWER, key=power)
    return numbers[position] if position < len(numbers) else -1


Comparisons = Sequence[Float[np.ndarray, " seeds"]]  # one, or two that must both hold


@dataclass(frozen=True)
class SeedEffects:
    """The effects of a hypothesis by seed, in the direction of its claim's sign."""

    comparisons: Comparisons
    signs: Sequence[int]  # of an effect on the side of the claim, for each comparison
    margin: float

    def weakest(self) -> tuple[np.ndarray, int]:
        """The comparison that supports the claim least, by its t value, and its sign."""
        pairs = list(zip(self.comparisons, self.signs, strict=True))
        if len(pairs) == 1:
            return pairs[0]

        def support(pair: tuple[np.ndarray, int]) -> float:
            values, sign = pair
            if len(values) < 2:
                return 0.0
            return sign * float(values.mean()) / max(float(values.std(ddof=1)), 1e-300)

        return min(pairs, key=support)


def decide_all(
    tested: Mapping[str, SeedEffects], *, fewest_seeds: int = FEWEST_SEEDS, holm: int = 0
) -> dict[str, Decision]:
    """The verdicts on a family of hypotheses.

    With `holm`, the number of hypotheses of the family, intervals have the confidence of
    Holm's step-down procedure: an interval excludes 0 if and only if Holm rejects no effect at
    5%. Hypotheses that are not run count in the family, so that the verdicts of others do not
    get stricter when they are run.

    Source: Holm (1979), A simple sequentially rejective multiple test procedure.
    """
    weakest = {row: (*t.weakest(), t.margin) for row, t in tested.items()}
    p_values = {
        row: estimate(effects).p
        for row, (effects, _, _) in weakest.items()
        if len(effects) >= fewest_seeds
    }
    ranked = sorted(
        (row for row, p in p_values.items() if isfinite(p)), key=p_values.__getitem__
    )
    alphas, alpha = {}, _ALPHA / max(1, holm)
    for rank, row in enumerate(ranked):
        alpha = _ALPHA / max(1, holm - rank)
        if p_values[row] > alpha:
            break
        alphas[row] = alpha
    return {
        row: decide(
            effects,
            margin,
            sign=sign,
            confidence=1 - alphas.get(row, alpha),
            fewest_seeds=fewest_seeds,
        )
        for row, (effects, sign, margin) in weakest.items()
    }
