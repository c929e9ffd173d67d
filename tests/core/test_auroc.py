"""Laws of the interval of the AUROC (src/visprism/core/statistics.py)."""

import numpy as np
import pytest
from scipy.stats import binomtest, norm

from visprism.core.statistics import auroc_interval
from visprism.measure.features.out_of_distribution import auroc


def test_the_ends_are_those_of_the_logit_and_lie_within_0_and_1():
    areas, errors = np.array([0.2, 0.9, 0.5]), np.array([0.05, 0.1, 0.02])
    low, high = auroc_interval(areas, errors, 30, 50)
    for ends, sign in ((low, -1), (high, 1)):
        logits = np.log(areas / (1 - areas)) + sign * 1.959964 * errors / (areas * (1 - areas))
        np.testing.assert_allclose(np.log(ends / (1 - ends)), logits, rtol=1e-6)
    swapped = auroc_interval(1 - areas, errors, 50, 30)
    np.testing.assert_allclose(swapped, [1 - high, 1 - low], atol=1e-12)


def test_data_that_are_apart_have_the_exact_interval_of_disjoint_pairs():
    low, high = auroc_interval(np.array([0.0, 1.0]), np.zeros(2), 30, 50)
    exact = binomtest(30, 30).proportion_ci(0.95)  # Clopper and Pearson
    np.testing.assert_allclose([low[1], high[1]], [exact.low, exact.high], atol=1e-9)
    np.testing.assert_allclose([low[0], high[0]], [1 - exact.high, 1 - exact.low], atol=1e-9)


def test_an_area_or_a_number_of_images_that_is_not_known_has_no_interval():
    assert np.isnan(auroc_interval(np.array([np.nan]), np.array([0.1]), 9, 9)).all()
    assert np.isnan(auroc_interval(np.array([0.9]), np.array([0.1]), 9, 0)).all()


@pytest.mark.parametrize("images", [20, 50, 200])
@pytest.mark.parametrize("area", [0.95, 0.99])
def test_the_interval_covers_areas_near_1(area: float, images: int):
    generator = np.random.default_rng(0)
    distance = norm.ppf(area) * np.sqrt(2)
    samples = [
        auroc(generator.normal(distance, 1, images), generator.normal(size=images))
        for _ in range(500)
    ]
    low, high = auroc_interval(*np.array(samples).T, images, images)
    assert ((low <= area) & (area <= high)).mean() >= 0.93
