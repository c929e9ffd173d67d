"""The interval of Cohen's kappa."""

import numpy as np
from jaxtyping import Float

from visprism.core.statistics import FEWEST_DIFFERENT, NORMAL_95

_STEP = 1e-9  # of kappa, to the side of the estimate, where the standard error may be 0


def kappa_interval(counts: Float[np.ndarray, "2 2"]) -> tuple[float, float]:
    """The 95% interval of Cohen's kappa, with the standard error at each end of the interval.

    It holds each k with |kappa - k| <= 1.96 s(k), with kappa computed from the counts and s(k)
    its large-sample standard error in the table that has the observed marginals and kappa k. As
    s(k) is 0 at k = 1, the interval lies within it and has a positive width also for a kappa
    of 1, where the standard error of the observed table is 0. Marginals that differ by more
    than kappa k allows are moved towards their mean, and for a k below the kappa of models
    which are never both correct or never both wrong towards 1/2.

    Standard errors at the estimate, with tanh(artanh(kappa) ± ...) or without, cover a kappa of
    0.95 in 87 to 91% of samples of 64 to 500 images.

    Args:
        counts: number of images by outcome of the first model (rows: wrong, correct) and of the
            second one (columns).

    Returns:
        Both ends; NaN where one of the models has fewer than 5 correct or 5 wrong outcomes.

    Source: Fleiss, Cohen and Everitt (1969), Large sample standard errors of kappa and weighted
    kappa, for s; Wilson (1927), Probable inference, the law of succession, and statistical
    inference, for the standard error at the ends.
    """
    from scipy.optimize import brentq  # SciPy takes a while to import

    if min(counts.sum(0).min(), counts.sum(1).min()) < FEWEST_DIFFERENT:
        return float("nan"), float("nan")
    images = float(counts.sum())
    table = counts / images
    first, second = float(table[1].sum()), float(table[:, 1].sum())
    observed = 1 - (table[0, 1] + table[1, 0]) / _disagreement(first, second)

    def excess(kappa: float) -> float:
        error = _standard_error(_table_of(kappa, first, second), kappa, images)
        return abs(observed - kappa) - NORMAL_95 * error

    def end(limit: float) -> float:
        start = observed + float(np.sign(limit)) * _STEP
        if abs(start) >= 1 or excess(start) >= 0:
            return observed
        root: float = brentq(excess, start, limit, xtol=1e-9)  # pyrefly: ignore
        return float(root)

    return end(-1.0), end(1.0)


def _disagreement(first: float, second: float) -> float:
    """Fraction of images on which independent models with these accuracies disagree."""
    return first * (1 - second) + second * (1 - first)


def _table_of(kappa: float, first: float, second: float) -> Float[np.ndarray, "2 2"]:
    """Joint proportions with this kappa and these accuracies, or the nearest that exist.

    With m the mean of the accuracies and d their difference, the models disagree on a fraction
    (1 - kappa) (2 m (1 - m) + d^2 / 2) of the images, which must be at least |d| and at most
    2 min(m, 1 - m).
    """
    mean, difference, beyond = (first + second) / 2, first - second, 1 - kappa
    if kappa < 0:
        mean = float(np.clip(mean, 1 - 1 / beyond, 1 / beyond))
        room = max(4 * min(mean, 1 - mean) / beyond - 4 * mean * (1 - mean), 0.0)
        difference = float(np.clip(difference, -(room**0.5), room**0.5))
    independent = 2 * mean * (1 - mean)
    if abs(difference) > beyond * (independent + difference**2 / 2):
        largest = 2 * beyond * independent / (1 + np.sqrt(1 - 2 * beyond**2 * independent))
        difference = float(np.sign(difference) * largest)
    first, second = mean + difference / 2, mean - difference / 2
    disagree = beyond * (independent + difference**2 / 2)
    only_first, only_second = (disagree + difference) / 2, (disagree - difference) / 2
    table = np.array([[1 - first - only_second, only_second], [only_first, first - only_first]])
    return np.clip(table, 0, 1)


def _standard_error(table: Float[np.ndarray, "2 2"], kappa: float, images: float) -> float:
    """Standard error of kappa from a table of joint proportions."""
    rows, columns = table.sum(1), table.sum(0)
    expected = float(rows @ columns)
    diagonal = np.diag(table) @ (1 - (rows + columns) * (1 - kappa)) ** 2
    crossed = (1 - kappa) ** 2 * (
        table[0, 1] * (columns[0] + rows[1]) ** 2 + table[1, 0] * (columns[1] + rows[0]) ** 2
    )
    chance = (kappa - expected * (1 - kappa)) ** 2
    return float(np.sqrt(max(diagonal + crossed - chance, 0) / images) / (1 - expected))
