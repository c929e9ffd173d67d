"""Laws of differences of two models (src/visprism/estimates/answers.py)."""

import numpy as np
import pytest
from scipy import stats

from visprism import Answer
from visprism.estimates.answers import difference


def answer(values, **options):
    values = np.asarray(values, dtype=np.float64)
    return Answer("How large?", "NLL", float(np.nanmean(values)), by_unit=values, **options)


def test_difference_and_interval_are_those_of_the_paired_t_test():
    generator = np.random.default_rng(0)
    a, noise = generator.normal(size=60), 0.3 * generator.normal(size=30)
    b = a + 0.2 + np.concatenate([noise, -noise])  # without skewness, Student's interval
    result = difference(answer(a), answer(b))
    test = stats.ttest_rel(b, a)
    error = (result.high - result.low) / (2 * stats.t.ppf(0.975, 59))
    assert result == pytest.approx(b.mean() - a.mean())
    assert result / error == pytest.approx(test.statistic)
    assert (result.low > 0 or result.high < 0) == (test.pvalue < 0.05)


def test_only_images_of_both_models_count():
    values = np.arange(40.0) / 7
    fewer = np.append(values[:35] + 1, np.nan)
    result = difference(answer(values), answer(fewer))
    np.testing.assert_allclose(result.by_unit, np.ones(35))
    assert difference(answer(values), Answer("How large?", "NLL", 1.0)) is None
    assert (
        difference(Answer("How large?", "NLL", 1.0, by_unit=values * np.nan), answer(values))
        is None
    )


def test_models_that_agree_on_every_image_may_still_differ():
    correct = np.ones(100)
    result = difference(answer(correct), answer(correct))
    assert result == 0
    # Rule of three: a difference of up to 3 / n may leave no trace in n images.
    assert result.high == pytest.approx(0.03, abs=0.01)
    assert result.low == -result.high


def test_few_mini_batches_have_no_interval_whatever_their_values():
    values = np.array([0.0, 0.0, 0.5]), np.array([1.0, 1.0, 1.0])
    result = difference(*(answer(v, over="mini-batches") for v in values))
    assert result == pytest.approx(5 / 6)
    assert np.isnan([result.low, result.high]).all()
    assert result.missing == "fewer than 32 mini-batches"


def test_a_missing_interval_of_a_model_is_that_of_the_difference():
    values = np.arange(40.0)
    result = difference(answer(values), answer(values**2, missing="too few errors"))
    assert np.isnan(result.low)
    assert result.missing == "too few errors"
