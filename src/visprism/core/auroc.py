"""The interval of an area under a receiver operating characteristic curve."""

import numpy as np
from jaxtyping import Float

from visprism.core.statistics import NORMAL_95

_HALVINGS = 50


def auroc_interval(
    area: Float[np.ndarray, " k"], error: Float[np.ndarray, " k"], first: int, second: int
) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
    """The 95% interval of the AUROC, Newcombe's with DeLong's variance where it is larger.

    The interval holds each A with (area - A)^2 <= 1.96^2 max(1, f) V(A), where

        V(A) = A (1 - A) / (m n) (1 + ((m + n) / 2 - 1) ((1 - A) / (2 - A) + A / (1 + A)))

    and f = error^2 / V(area), so that distributions of scores that V does not fit have wide
    enough intervals. As V is 0 at 0 and 1, the interval lies within them and has a positive
    width also for an area of 0 or 1, where DeLong's error is 0.

    In simulations of normal scores with an AUROC of 0.95, 0.98 and 0.99, of 20, 50 and 200
    images of each data set, it covers the AUROC in 96 to 99% of samples (area ± 1.96
    errors: 53 to 94%).

    Args:
        area: observed AUROC.
        error: its standard error by DeLong's method; not finite where it is not known.
        first: number of images of one data set, m.
        second: number of images of the other one, n.

    Returns:
        The lower and the upper ends; NaN for an area of NaN or where a number of images is 0.

    Source: Newcombe (2006), Confidence intervals for an effect size measure based on the
    Mann-Whitney statistic, part 2, method 5.
    """
    missing = np.full(len(area), np.nan)
    if min(first, second) < 1:
        return missing, missing
    model = _variance(area, first, second)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(model > 0, error**2 / model, 1.0)
    inflation = np.maximum(np.where(np.isfinite(ratio), ratio, 1.0), 1.0)

    def end(limit: float) -> Float[np.ndarray, " k"]:
        inside, outside = area.astype(float), np.full(len(area), limit)
        for _ in range(_HALVINGS):
            middle = (inside + outside) / 2
            variance = inflation * _variance(middle, first, second)
            holds = (area - middle) ** 2 <= NORMAL_95**2 * variance
            inside, outside = np.where(holds, middle, inside), np.where(holds, outside, middle)
        return np.where(np.isfinite(area), inside, np.nan)

    return end(0.0), end(1.0)


def _variance(area: Float[np.ndarray, " k"], m: int, n: int) -> Float[np.ndarray, " k"]:
    pairs = (1 - area) / (2 - area) + area / (1 + area)
    return area * (1 - area) / (m * n) * (1 + ((m + n) / 2 - 1) * pairs)
