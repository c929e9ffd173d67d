"""Statistics: standard errors and intervals from sums over images."""

from typing import Any

import numpy as np
from jaxtyping import Float

Sums = dict[Any, np.ndarray]  # by block, or by attention

NORMAL_95 = 1.959963984540054  # 97.5 % quantile of the normal distribution


def standard_error(
    total: Float[np.ndarray, "*shape"],
    squares: Float[np.ndarray, "*shape"],
    count: Float[np.ndarray, "*shape"],
) -> Float[np.ndarray, "*shape"]:
    """Standard error of a mean, from the sum, the sum of squares and the number of images.

    NaN for a single image.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = (squares - total**2 / count) / (count - 1)
        error = np.sqrt(np.maximum(variance, 0) / count)  # rounding may go below 0
    return np.where(count > 1, error, np.nan)


def mean_interval(values: Float[np.ndarray, " n"]) -> tuple[float, float]:
    """The 95 % interval of a mean, mean ± 1.96 s / sqrt(n), with s the standard deviation.

    NaN for a single value.
    """
    n = len(values)
    if n < 2:
        return float("nan"), float("nan")
    center, error = values.mean(), values.std(ddof=1) / np.sqrt(n)
    return float(center - NORMAL_95 * error), float(center + NORMAL_95 * error)


def paired_proportions_interval(gained: int, lost: int, pairs: int) -> tuple[float, float]:
    """The 95 % interval of a difference of two proportions of the same images.

    With p = (gained + 1) / (n + 2) and q = (lost + 1) / (n + 2) the interval is
    p - q ± 1.96 sqrt((p + q - (p - q)^2) / (n + 2)), within -1 and 1.

    Args:
        gained: images that count in the second proportion only.
        lost: images that count in the first proportion only.
        pairs: all images, n.

    Source: Bonett and Price (2012), Adjusted Wald confidence interval for a difference of
    binomial proportions based on paired data.
    """
    p, q = (gained + 1) / (pairs + 2), (lost + 1) / (pairs + 2)
    half = NORMAL_95 * np.sqrt((p + q - (p - q) ** 2) / (pairs + 2))
    return float(max(p - q - half, -1)), float(min(p - q + half, 1))


def t_interval(mean: float, error: float, count: int) -> tuple[float, float]:
    """Student's 95 % interval of a mean of `count` independent values.

    The interval is mean ± t error, with t the 97.5 % quantile with count - 1 degrees of
    freedom. NaN where the error is, or for fewer than 2 values.

    Args:
        mean: of the values.
        error: standard error of the mean.
        count: number of values.
    """
    if count < 2 or not np.isfinite(error):
        return float("nan"), float("nan")
    from scipy.special import stdtrit  # SciPy takes a while to import

    half = float(stdtrit(count - 1, 0.975)) * error
    return mean - half, mean + half
