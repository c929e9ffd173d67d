"""Tests of standard errors and intervals (src/visprism/core/statistics.py)."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from visprism.core.statistics import (
    mean_fraction_interval,
    mean_interval,
    standard_error,
    wilson,
)


def test_standard_error_is_that_of_scipy():
    values = np.random.default_rng(0).normal(size=(3, 40))
    error = standard_error(values.sum(1), np.square(values).sum(1), np.full(3, 40.0))
    np.testing.assert_allclose(error, stats.sem(values, axis=1))
    assert np.isnan(standard_error(*np.ones((3, 1))))[0]


@pytest.mark.parametrize("n", [32, 400])
def test_interval_of_a_mean_of_symmetric_values_with_short_tails_is_students(n: int):
    half = np.random.default_rng(1).uniform(0.5, 1, size=n // 2)
    values = 3 + np.concatenate([half, -half])
    expected = stats.t.interval(0.95, n - 1, loc=values.mean(), scale=stats.sem(values))
    np.testing.assert_allclose(mean_interval(values), expected)


def freedom(values: np.ndarray) -> float:
    """2 Var^2 / Var(sample variance), for values with the kurtosis of the sample."""
    n = len(values)
    skewness = stats.skew(values) * ((n - 1) / n) ** 1.5
    excess = stats.kurtosis(values, fisher=False) * ((n - 1) / n) ** 2 - 3 - skewness**2 / 2
    return 2 / (max(excess, 0) / n + 2 / (n - 1))


@pytest.mark.parametrize("n", [32, 400])
def test_heavy_tails_have_the_quantile_of_the_freedom_of_their_variance(n: int):
    half = np.random.default_rng(1).exponential(size=n // 2) ** 2
    values = 3 + np.concatenate([half, -half])
    low, high = mean_interval(values)
    quantile = stats.t.ppf(0.975, freedom(values))
    assert quantile > 1.02 * stats.t.ppf(0.975, n - 1)
    assert high - 3 == pytest.approx(3 - low)
    assert high - 3 == pytest.approx(quantile * stats.sem(values))


@pytest.mark.parametrize("law", ["exponential", "laplace", "normal"])
def test_the_freedom_of_the_variance_is_that_of_simulated_variances(law: str):
    # 2 Var^2 / Var(sample variance) = 2 / (k / n + 2 / (n - 1)), with excess kurtosis k.
    excess = {"exponential": 6, "laplace": 3, "normal": 0}[law]
    samples = getattr(np.random.default_rng(8), law)(size=(40_000, 50))
    variances = samples.var(axis=1, ddof=1)
    simulated = 2 * variances.mean() ** 2 / variances.var()
    assert simulated == pytest.approx(2 / (excess / 50 + 2 / 49), rel=0.06)


def test_interval_of_a_mean_inverts_halls_polynomial():
    values = np.random.default_rng(2).exponential(size=50)
    b = stats.skew(values, bias=True) * (49 / 50) ** 1.5 / np.sqrt(50)
    low, high = mean_interval(values)
    studentized = (values.mean() - np.array([high, low])) / stats.sem(values)
    x = studentized
    transformed = x + b * x**2 / 3 + b**2 * x**3 / 27 + b / 6
    quantile = stats.t.ppf(0.975, freedom(values))
    np.testing.assert_allclose(transformed, [-quantile, quantile])


def coverage(draw: Callable[[tuple[int, int]], np.ndarray], truth: float, n: int) -> float:
    """How often intervals of 1,000 samples of n values contain the mean of the distribution."""
    ends = np.array([mean_interval(sample) for sample in draw((1000, n))])
    return float(((ends[:, 0] <= truth) & (truth <= ends[:, 1])).mean())


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("n", [32, 64, 512])
@pytest.mark.parametrize("law", ["normal", "exponential", "uniform"])
def test_intervals_of_a_mean_cover_it_in_95_percent(law: str, n: int):
    generator = np.random.default_rng(3)
    mean = {"normal": 0.0, "exponential": 1.0, "uniform": 0.5}[law]
    draw = {"normal": generator.normal, "exponential": generator.exponential}.get(
        law, generator.uniform
    )
    assert 0.92 <= coverage(lambda size: draw(size=size), mean, n) <= 0.97


@pytest.mark.usefixtures("unchecked")
def test_intervals_of_mean_losses_cover_them_where_students_do_not():
    # Log-normal values as losses of images are: 1% of the images hold a tenth of the sum.
    generator = np.random.default_rng(4)
    losses = generator.lognormal(-1, 1.2, size=(2000, 64))
    truth = np.exp(-1 + 1.2**2 / 2)
    ends = np.array([mean_interval(sample) for sample in losses])
    inside = (ends[:, 0] <= truth) & (truth <= ends[:, 1])
    low, high = stats.t.interval(0.95, 63, loc=losses.mean(1), scale=stats.sem(losses, axis=1))
    assert ((low <= truth) & (truth <= high)).mean() < 0.92 <= inside.mean() <= 0.97


@pytest.mark.parametrize("events", [4, 5, 8])
@pytest.mark.parametrize("n", [32, 1000])
def test_the_interval_of_a_rare_proportion_is_of_the_length_of_wilsons(events: int, n: int):
    # Confidences that hardly differ, less 1 for a few correct images.
    confidence = 0.163 + 0.001 * np.random.default_rng(5).normal(size=n)
    low, high = mean_interval(confidence - (np.arange(n) < events))
    smallest, largest = (ends.item() for ends in wilson(np.array([events]), np.array([n])))
    assert low == pytest.approx(0.163 - largest, abs=0.3 * (largest - smallest))
    assert 0.163 - smallest <= high <= 0.163 + 0.5 * (largest - smallest)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("sigma", [1.0, 1.5])
def test_the_limit_of_the_correction_does_not_cost_coverage(sigma: float):
    generator = np.random.default_rng(7)
    samples = generator.lognormal(0, sigma, size=(1000, 100))
    truth = np.exp(sigma**2 / 2)
    ends = np.array([mean_interval(sample) for sample in samples])
    inside = ((ends[:, 0] <= truth) & (truth <= ends[:, 1])).mean()
    low, high = stats.t.interval(
        0.95, 99, loc=samples.mean(1), scale=stats.sem(samples, axis=1)
    )
    students = ((low <= truth) & (truth <= high)).mean()
    assert inside >= 0.92
    assert inside >= students + 0.01


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


@pytest.mark.parametrize("images", [16, 64, 256])
@pytest.mark.parametrize("shape", [(0.05, 1), (0.2, 2), (0.01, 1), (1.5, 3.5), (1, 0.05)])
def test_the_interval_of_a_mean_fraction_covers_it_also_in_few_images(
    shape: tuple[float, float], images: int
):
    generator = np.random.default_rng(12)
    values = generator.binomial(196, generator.beta(*shape, size=(2000, images))) / 196
    low, high = mean_fraction_interval(values.mean(1), stats.sem(values, axis=1), images)
    share = shape[0] / sum(shape)
    assert np.mean((low <= share) & (share <= high)) >= 0.92


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("share", "spread"), [(0.002, 100.0), (0.02, 2.0), (0.3, 10.0)])
def test_the_interval_of_a_mean_fraction_covers_it(share: float, spread: float):
    # 196 tokens of an image, whose chance of being an outlier varies between images.
    generator, images = np.random.default_rng(10), 300
    inside = []
    for _ in range(500):
        chance = generator.beta(share * spread, (1 - share) * spread, size=images)
        values = generator.binomial(196, chance) / 196
        fraction, error = np.array([values.mean()]), np.array([stats.sem(values)])
        low, high = mean_fraction_interval(fraction, error, images)
        inside.append(low[0] <= share <= high[0])
    assert 0.92 <= np.mean(inside) <= 0.98


@pytest.mark.parametrize(("successes", "trials"), [(81, 263), (15, 148), (0, 20), (29, 29)])
def test_wilson_interval_is_that_of_scipy(successes: int, trials: int):
    expected = stats.binomtest(successes, trials).proportion_ci(method="wilson")
    low, high = wilson(np.array([successes]), np.array([trials]))
    np.testing.assert_allclose((low[0], high[0]), (expected.low, expected.high), atol=1e-12)


def test_wilson_interval_contains_the_proportion_also_at_its_ends():
    trials = np.repeat(np.arange(1, 60), 3)
    successes = np.ravel([[0, n // 2, n] for n in range(1, 60)])
    low, high = wilson(successes, trials)
    assert (low <= successes / trials).all()
    assert (high >= successes / trials).all()
