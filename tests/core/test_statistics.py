"""Laws of standard errors and intervals (src/visprism/core/statistics.py)."""

import numpy as np
import pytest
from scipy import stats

from visprism.core.statistics import (
    auroc_interval,
    heavy_tailed_interval,
    mean_fraction_interval,
    mean_interval,
    paired_proportions_interval,
    wilson,
)


def test_interval_of_a_mean_of_symmetric_values_with_short_tails_is_students():
    n, half = 32, np.random.default_rng(1).uniform(0.5, 1, size=16)
    values = 3 + np.concatenate([half, -half])
    expected = stats.t.interval(0.95, n - 1, loc=values.mean(), scale=stats.sem(values))
    np.testing.assert_allclose(mean_interval(values), expected)


def freedom(values: np.ndarray) -> float:
    """2 Var^2 / Var(sample variance), for values with the kurtosis of the sample."""
    n = len(values)
    skewness = stats.skew(values) * ((n - 1) / n) ** 1.5
    excess = stats.kurtosis(values, fisher=False) * ((n - 1) / n) ** 2 - 3 - skewness**2 / 2
    return 2 / (max(excess, 0) / n + 2 / (n - 1))


@pytest.mark.parametrize("power", [1, 6])  # with the skewness as it is, and limited
def test_interval_of_a_mean_inverts_halls_polynomial(power: int):
    values = np.random.default_rng(2).exponential(size=50) ** power
    b = stats.skew(values, bias=True) * (49 / 50) ** 1.5 / np.sqrt(50)
    quantile = stats.t.ppf(0.975, freedom(values))
    assert (b > 0.9 / quantile) == (power == 6)
    b = min(b, 0.9 / quantile)
    low, high = mean_interval(values)
    studentized = (values.mean() - np.array([high, low])) / stats.sem(values)
    x = studentized
    transformed = x + b * x**2 / 3 + b**2 * x**3 / 27 + b / 6
    np.testing.assert_allclose(transformed, [-quantile, quantile])


@pytest.mark.parametrize("events", [4, 5, 8])
@pytest.mark.parametrize("n", [32, 1000])
def test_the_interval_of_a_rare_proportion_is_of_the_length_of_wilsons(events: int, n: int):
    # Confidences that hardly differ, less 1 for a few correct images.
    confidence = 0.163 + 0.001 * np.random.default_rng(5).normal(size=n)
    low, high = mean_interval(confidence - (np.arange(n) < events))
    smallest, largest = (ends.item() for ends in wilson(np.array([events]), np.array([n])))
    assert low == pytest.approx(0.163 - largest, abs=0.3 * (largest - smallest))
    assert 0.163 - smallest <= high <= 0.163 + 0.5 * (largest - smallest)


@pytest.mark.parametrize(
    "values", [[], [1.0], [float(i) for i in range(31)], [1.0] * 50, [0.0] * 60 + [1.0] * 4]
)
def test_few_values_or_values_that_hardly_differ_have_no_interval(values: list[float]):
    assert np.isnan(mean_interval(np.array(values))).all()


def test_fractions_of_0_and_1_have_the_interval_of_wilson():
    correct = np.random.default_rng(9).random((3, 200)) < np.array([[0.02], [0.5], [0.9]])
    error = np.sqrt(correct.mean(1) * (1 - correct.mean(1)) / 200)
    ends = mean_fraction_interval(correct.mean(1), error, 200)
    np.testing.assert_allclose(ends, wilson(correct.sum(1), np.full(3, 200)))


def test_the_interval_of_a_mean_fraction_never_leaves_0_to_1_and_is_never_empty():
    fraction, error = np.array([0.0, 1.0, 1e-5, 0.999]), np.array([0.0, 0.0, 1e-5, 1e-3])
    low, high = mean_fraction_interval(fraction, error, 100)
    assert ((low >= 0) & (low <= fraction) & (high >= fraction) & (high <= 1)).all()
    assert (high > low).all()
    # Without any, as for 100 trials; the rule of three has 0.03.
    assert high[0] == pytest.approx(stats.binomtest(0, 100).proportion_ci(method="wilson").high)


@pytest.mark.parametrize(
    ("fraction", "error", "images", "trials"),
    [(0.8, 0.049, 16, 0.16 / 0.049**2), (0.8, 0.051, 16, 16), (0.8, 0.03, 15, 15),
     (0.8, 0.04, 900, 900)],
)  # fmt: skip
def test_the_error_of_a_mean_fraction_counts_up_to_a_quarter_of_it_and_from_16_images_on(
    fraction: float, error: float, images: int, trials: float
):
    ends = mean_fraction_interval(np.array([fraction]), np.array([error]), images)
    for (end,) in ends:  # Wilson's equation
        assert (fraction - end) ** 2 == pytest.approx(1.959964**2 * end * (1 - end) / trials)


@pytest.mark.parametrize(("successes", "trials"), [(81, 263), (15, 148), (0, 20), (29, 29)])
def test_wilson_interval_is_that_of_scipy(successes: int, trials: int):
    expected = stats.binomtest(successes, trials).proportion_ci(method="wilson")
    low, high = wilson(np.array([successes]), np.array([trials]))
    np.testing.assert_allclose((low[0], high[0]), (expected.low, expected.high), atol=1e-12)


def test_a_difference_of_proportions_lies_within_1():
    assert paired_proportions_interval(5, 0, 5)[1] == 1
    assert paired_proportions_interval(0, 5, 5)[0] == -1


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
    centered = values - values.mean()  # linearized, with small logarithms
    ends = heavy_tailed_interval(centered, np.full(40, -9.0))
    assert ends == (0, mean_interval(centered)[1])
    assert np.isnan(heavy_tailed_interval(log_normal(31, 0.5))).all()
    assert np.isfinite(heavy_tailed_interval(log_normal(32, 0.5))).all()
