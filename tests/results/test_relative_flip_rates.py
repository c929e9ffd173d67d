"""Laws of flip rates relative to a reference model (src/visprism/results/stability.py)."""

from dataclasses import replace

import numpy as np
import pytest
from results_by_hand.outputs import stability

from visprism import InputError
from visprism.analyses.predictions.stability import relative_flip_rates


def test_the_mean_is_that_of_the_ratios_not_the_ratio_of_the_means():
    reference = stability()
    rates = reference.flip_rate
    factors = np.linspace(0.5, 2, len(rates))
    result = relative_flip_rates(replace(reference, flip_rate=factors * rates), reference)
    np.testing.assert_allclose(result.ratio, factors)
    assert result.mean_ratio == pytest.approx(factors.mean())
    assert f"{factors.mean():.1%}" in str(result.findings()[0])


def test_a_model_relative_to_itself_is_100_percent():
    assert relative_flip_rates(stability(), stability()).mean_ratio == 1


def test_a_reference_without_flips_has_no_ratio():
    reference = stability()
    rates = reference.flip_rate.copy()
    rates[0] = 0
    result = relative_flip_rates(reference, replace(reference, flip_rate=rates))
    assert np.isnan(result.ratio[0])
    assert np.isnan(result.mean_ratio)
    assert "undefined" in str(result.findings()[0])


def test_other_perturbations_are_refused():
    other = stability()
    with pytest.raises(InputError, match="must have the perturbations and frames"):
        relative_flip_rates(stability(), other.select(np.arange(len(other)) > 0))
