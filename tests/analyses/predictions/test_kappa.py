"""Tests of the interval of Cohen's kappa (analyses/predictions/error_consistency.py)."""

import numpy as np
import pytest
from scipy import optimize, stats

from visprism.analyses.predictions.error_consistency import kappa_interval

QUANTILE = stats.norm.ppf(0.975)


def table(kappa: float, first: float, second: float) -> np.ndarray:
    """Joint probabilities of two models: wrong and correct, by rows and columns."""
    disagree = (1 - kappa) * (first * (1 - second) + second * (1 - first))
    only_first, only_second = (disagree + first - second) / 2, (disagree - first + second) / 2
    return np.array([[1 - first - only_second, only_second], [only_first, first - only_first]])


@pytest.mark.parametrize("agreeing", [60, 100])
def test_ends_solve_the_equation_of_equal_marginals(agreeing: int):
    # Bloch and Kraemer (1989): with one accuracy p, n Var(kappa) =
    # (1 - k) ((1 - k)(1 - 2 k) + k (2 - k) / (2 p (1 - p))).
    half, disagreeing = agreeing / 2, (100 - agreeing) / 2
    low, high = kappa_interval(np.array([[half, disagreeing], [disagreeing, half]]))
    observed = 2 * agreeing / 100 - 1

    def excess(k: float) -> float:
        variance = (1 - k) * ((1 - k) * (1 - 2 * k) + 2 * k * (2 - k)) / 100
        return (observed - k) ** 2 - QUANTILE**2 * variance

    assert low == pytest.approx(optimize.brentq(excess, -1, observed - 1e-9), abs=1e-6)
    if agreeing < 100:
        assert high == pytest.approx(optimize.brentq(excess, observed + 1e-9, 1), abs=1e-6)
    else:
        assert high == 1


def test_models_and_outcomes_may_be_exchanged():
    counts = np.array([[12.0, 5.0], [9.0, 102.0]])
    expected = kappa_interval(counts)
    assert kappa_interval(counts.T) == pytest.approx(expected, abs=1e-9)
    assert kappa_interval(counts[::-1, ::-1]) == pytest.approx(expected, abs=1e-9)


def test_every_table_of_counts_has_an_interval_around_its_kappa():
    images = 12
    for wrong in range(5, images - 4):
        for correct in range(5, images - 4):
            for both in range(max(0, correct - wrong), min(correct, images - wrong) + 1):
                cells = [wrong - correct + both, correct - both, images - wrong - both, both]
                counts = np.array(cells, dtype=float).reshape(2, 2)
                p, q = counts[1].sum() / images, counts[:, 1].sum() / images
                chance = p * q + (1 - p) * (1 - q)
                kappa = (np.trace(counts) / images - chance) / (1 - chance)
                low, high = kappa_interval(counts)
                assert -1 <= low <= kappa + 1e-9
                assert kappa - 1e-9 <= high <= 1
                assert low < high


def profile_interval(counts: np.ndarray) -> tuple[float, float]:
    """The interval by the profile likelihood of kappa, maximized over both accuracies."""
    total = counts.sum()
    first, second = counts[1].sum() / total, counts[:, 1].sum() / total
    best = (counts * np.log(counts / total)).sum()

    def deviance(kappa: float) -> float:
        def loss(accuracies: np.ndarray) -> float:
            joint = table(kappa, *accuracies)
            return -(counts * np.log(joint)).sum() if joint.min() > 0 else 1e9

        return 2 * (optimize.minimize(loss, (first, second), method="Nelder-Mead").fun + best)

    observed = 1 - (counts[0, 1] + counts[1, 0]) / total / (
        first * (1 - second) + second * (1 - first)
    )
    return tuple(
        optimize.brentq(lambda k: deviance(k) - QUANTILE**2, observed, observed + step)
        for step in (-0.4, 0.9 * (1 - observed))
    )


def test_the_interval_is_near_that_of_the_profile_likelihood():
    values = np.array([[60.0, 12], [20, 300]])
    low, high = kappa_interval(values)
    expected = profile_interval(values)
    assert (low, high) == pytest.approx(expected, abs=0.15 * (expected[1] - expected[0]))
