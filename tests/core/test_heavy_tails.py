"""Intervals of means with heavy upper tails (src/visprism/core/statistics.py)."""

import numpy as np
import pytest
from scipy import stats

from visprism.core.statistics import heavy_tailed_interval, mean_interval


def log_normal(n: int, spread: float, seed: int = 0) -> np.ndarray:
    return np.exp(spread * np.random.default_rng(seed).normal(size=n))


def test_the_upper_end_is_that_of_a_log_normal_mean():
    """Zou, Taleban and Huo (2009), sec. 2: MOVER of the mean and half the variance of logs."""
    values = log_normal(40, 2.0)
    logs = np.log(values)
    n, mean, half_variance = 40, logs.mean(), logs.var(ddof=1) / 2
    upper_mean = stats.t.interval(0.95, n - 1, mean, stats.sem(logs))[1]
    upper_half = half_variance * (n - 1) / stats.chi2.ppf(0.025, n - 1)
    margin = np.hypot(upper_mean - mean, upper_half - half_variance)
    low, high = heavy_tailed_interval(values)
    assert high == pytest.approx(np.exp(mean + half_variance + margin), rel=1e-10)
    assert low == pytest.approx(mean_interval(values)[0])


def test_the_unit_of_the_values_does_not_matter():
    values = log_normal(50, 2.0)
    scaled = np.array(heavy_tailed_interval(1000 * values)) / 1000
    np.testing.assert_allclose(scaled, heavy_tailed_interval(values), rtol=1e-10)


def test_values_that_are_not_positive_have_the_interval_of_their_mean_and_31_have_none():
    values = log_normal(40, 1.0) - 1.0
    assert heavy_tailed_interval(values) == mean_interval(values)
    assert np.isnan(heavy_tailed_interval(log_normal(31, 0.5))).all()
    assert np.isfinite(heavy_tailed_interval(log_normal(32, 0.5))).all()
