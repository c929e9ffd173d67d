"""Laws of the interval of the AUROC (src/visprism/core/statistics.py)."""

import numpy as np
import pytest

from visprism.core.statistics import auroc_interval


def test_the_ends_solve_newcombes_equation_and_lie_within_0_and_1():
    areas = np.array([0.0, 0.2, 0.9, 1.0])
    m, n = 30, 50
    low, high = auroc_interval(areas, np.zeros(4), m, n)
    for area, end in [*zip(areas[1:], low[1:]), *zip(areas[:-1], high[:-1])]:  # noqa: B905
        pairs = (1 - end) / (2 - end) + end / (1 + end)
        variance = end * (1 - end) * (1 + 39 * pairs) / (m * n)
        assert (area - end) ** 2 == pytest.approx(1.959964**2 * variance, rel=1e-5)
    assert low[0] == 0
    assert high[-1] == 1
    assert (high - low > 0.05).all()
    swapped = auroc_interval(1 - areas, np.zeros(4), n, m)
    np.testing.assert_allclose(swapped, [1 - high, 1 - low], atol=1e-12)


def test_a_larger_error_by_delong_makes_the_interval_wider():
    area = np.full(3, 0.9)
    low, high = auroc_interval(area, np.array([0.001, 0.1, np.nan]), 50, 50)
    assert low[1] < low[0] == low[2]
    assert high[1] > high[0] == high[2]


def test_an_area_or_a_number_of_images_that_is_not_known_has_no_interval():
    assert np.isnan(auroc_interval(np.array([np.nan]), np.array([0.1]), 9, 9)).all()
    assert np.isnan(auroc_interval(np.array([0.9]), np.array([0.1]), 9, 0)).all()
