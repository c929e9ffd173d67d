"""Intervals of means of positive values whose largest ones make much of the mean.

Losses and curvatures of mini-batches are such values: a sample often holds none of the largest.
"""

import numpy as np
from jaxtyping import Float

from visprism.core.statistics import (
    correlation,
    difference_interval,
    mean_interval,
    t_quantile,
)


def heavy_tailed_interval(
    values: Float[np.ndarray, " n"], logs: Float[np.ndarray, " m"] | None = None
) -> tuple[float, float]:
    """The 95% interval of the mean of independent positive values with a heavy upper tail.

    The lower end is that of `visprism.core.statistics.mean_interval`, at least 0. The upper end
    is the larger one of that interval and of the one for log-normal values,

        a + v / 2 + sqrt(t^2 v / n + (v / 2)^2 ((n - 1) / c - 1)^2), exponentiated,

    with a and v the mean and the variance of the logarithms of n values, and c the 2.5%
    quantile of chi-square with n - 1 degrees of freedom. Values that are not all positive have
    the interval of `mean_interval`.

    In simulations of log-normal (standard deviation of the logarithms 0.2 to 2), gamma and
    two-valued mixtures the interval covers the mean in 92 to 98% of samples of 32 and more.
    There is none for fewer than 32: where one value in ten is ten times as large, a fifth of
    samples of 16 hold none of these, no sample of that kind shows that they exist, and the
    interval would cover the mean in 80%. For the same reason no interval of n values covers
    what events make that are rarer than 3 in n.

    Args:
        values: of mini-batches or other independent units; `linearized_ratio` of a ratio.
        logs: logarithms of the units' own values, where `values` are linearized.

    Source: Zou, Taleban and Huo (2009), Confidence interval estimation for lognormal data with
    application to health economics.
    """
    low, high = mean_interval(values)
    if logs is None and (values > 0).all():
        logs = np.log(values)
    if logs is None or not np.isfinite(low):
        return low, high
    return max(low, 0.0), max(high, _log_normal_end(logs))


def heavy_tailed_difference(
    first: Float[np.ndarray, " n"], second: Float[np.ndarray, " n"]
) -> tuple[float, float]:
    """The 95% interval of the difference of two such means over the same units.

    It is that of `visprism.core.statistics.difference_interval`, with the correlation of the
    values; NaN where one mean has no interval. Student's interval of the mean of the paired
    differences covers the truth in 58 to 94% of samples of 10 to 32.
    """
    pair = [(float(v.mean()), *heavy_tailed_interval(v)) for v in (first, second)]
    if not np.isfinite(pair).all():
        return float("nan"), float("nan")
    r = correlation(first, second)
    return difference_interval(pair[0], pair[1], (r, r))


def _log_normal_end(logs: Float[np.ndarray, " m"]) -> float:
    """Upper end of the 95% interval of the mean of log-normal values."""
    from scipy.special import chdtri  # SciPy takes a while to import

    n, variance = len(logs), float(logs.var(ddof=1))
    spread = variance / 2 * ((n - 1) / chdtri(n - 1, 0.975) - 1)
    margin = (t_quantile(n) ** 2 * variance / n + spread**2) ** 0.5
    return float(np.exp(logs.mean() + variance / 2 + margin))
