"""Differences of two models in one quantity, on the same images.

Two models that are measured on the same images differ by less noise than their two intervals
suggest: what makes an image difficult is difficult for both. The difference is taken unit by
unit, and its interval is over units.
"""

from math import isfinite, nan

import numpy as np
from jaxtyping import Float
from scipy.stats import pearsonr

from visprism.core.statistics import (
    difference_interval,
    mean_interval,
    paired_proportions_interval,
    t_interval,
)
from visprism.estimates.answers import FEWEST, Answer, reason_without
from visprism.estimates.estimated import Number


def difference(first: Answer, second: Answer) -> Number | None:
    """Second minus first, with its 95% interval; None where the two have no common units.

    Means are paired: with d_i = second_i - first_i over n common units, the difference is
    mean(d), and its interval that of `mean_interval`. Where all values are 0 or 1 it is that of
    Bonett and Price, which does not shrink to a point when the models agree on every image; of
    pairs of random directions it is Student's. With the comparison "combined" the interval
    follows from both intervals and the correlation of the values by unit (Zou and Donner).
    Answers of geometric means are differences of logs.

    Sources: Bonett and Price (2012), Adjusted Wald confidence interval for a difference of
    binomial proportions based on paired data; Zou and Donner (2008), Construction of confidence
    limits about effect measures.
    """
    a, b = first.by_unit, second.by_unit
    if a is None or b is None or first.comparison == "none":
        return None
    n = min(len(a), len(b))
    a, b = (values[:n].astype(np.float64) for values in (a, b))
    both = np.isfinite(a) & np.isfinite(b)
    a, b = a[both], b[both]
    if not len(a):
        return None
    by_unit = b - a
    missing = next((x.missing for x in (first, second) if x.missing), "")
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
    r = float(pearsonr(a, b).statistic) if np.ptp(a) and np.ptp(b) else 0.0
    correlations = (r, r)
    if first.comparison == "bounded":
        # Where the lower end of a model is 0, its estimate is too large on average and not
        # normal; a correlation of -1 is taken at that end.
        correlations = (r if second.low > 0 else -1.0, r if first.low > 0 else -1.0)
    return difference_interval(pair[0], pair[1], correlations)
