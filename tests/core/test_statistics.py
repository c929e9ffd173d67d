"""Tests of standard errors, intervals and resamples (src/visprism/core/statistics.py)."""

import numpy as np
import pytest
from scipy import stats

from visprism.core.statistics import mean_interval, resample_counts, standard_error, wilson


def test_standard_error_is_that_of_scipy():
    values = np.random.default_rng(0).normal(size=(3, 40))
    error = standard_error(values.sum(1), np.square(values).sum(1), np.full(3, 40.0))
    np.testing.assert_allclose(error, stats.sem(values, axis=1))
    assert np.isnan(standard_error(*np.ones((3, 1))))[0]


def test_interval_of_a_mean_is_the_mean_and_1_96_standard_errors():
    values = np.random.default_rng(1).exponential(size=50)
    expected = stats.norm.interval(0.95, loc=values.mean(), scale=stats.sem(values))
    np.testing.assert_allclose(mean_interval(values), expected)


@pytest.mark.parametrize(("successes", "trials"), [(81, 263), (15, 148), (0, 20), (29, 29)])
def test_wilson_interval_is_that_of_scipy(successes: int, trials: int):
    expected = stats.binomtest(successes, trials).proportion_ci(method="wilson")
    low, high = wilson(np.array([successes]), np.array([trials]))
    np.testing.assert_allclose((low[0], high[0]), (expected.low, expected.high), atol=1e-12)


def test_wilson_interval_without_trials_is_0_to_1():
    low, high = wilson(np.array([0]), np.array([0]))
    assert (low[0], high[0]) == (0, 1)


def test_wilson_interval_contains_the_proportion_also_at_its_ends():
    trials = np.repeat(np.arange(1, 60), 3)
    successes = np.ravel([[0, n // 2, n] for n in range(1, 60)])
    low, high = wilson(successes, trials)
    assert (low <= successes / trials).all()
    assert (high >= successes / trials).all()


def test_a_resample_has_as_many_images_as_there_are_and_each_equally_often():
    counts = np.concatenate(list(resample_counts(30, 4000, seed=0)))
    assert counts.shape == (4000, 30)
    assert (counts.sum(1) == 30).all()
    # A count is binomial with mean 1 and variance 1 - 1 / 30.
    np.testing.assert_allclose(counts.mean(0), 1, atol=5 / np.sqrt(4000))
    assert counts.var() == pytest.approx(1 - 1 / 30, abs=0.02)


def test_resamples_depend_on_the_seed_and_not_on_how_many_are_made_at_once(
    monkeypatch: pytest.MonkeyPatch,
):
    first, other = (np.concatenate(list(resample_counts(20, 50, seed=s))) for s in (0, 1))
    assert not np.array_equal(first, other)
    monkeypatch.setattr("visprism.core.statistics._RESAMPLED", 70)
    np.testing.assert_array_equal(np.concatenate(list(resample_counts(20, 50, seed=0))), first)
