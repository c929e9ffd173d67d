"""Laws of circles around the weights, and of the interval of their increase."""

import numpy as np
import pytest
from landscape_cases import least_squares, squares
from scipy import stats

from visprism import Answer, Run, landscape, loss_by_distance, random_planes
from visprism.estimates.answers import difference
from visprism.estimates.estimated import stacked
from visprism.loss.loss_by_distance import crossed_mean
from visprism.results import LossByDistance


@pytest.fixture
def linear():
    return least_squares()


@pytest.fixture
def normalized(convolutional, images, classes):
    """A network with BatchNorm, and its data."""
    return convolutional, [(images, classes)]


@pytest.mark.parametrize("angles", [4, 14])
def test_on_a_quadratic_the_increase_is_exact_at_every_distance(linear, angles):
    """r^2/4 (d1' H d1 + d2' H d2), with H of least squares the second moment of the inputs."""
    model, batches = linear
    radii = (0.03, 0.1, 0.5, 1.0, 3.0)
    result = loss_by_distance(model, batches, radii=radii, angles=angles, pairs=3, loss=squares)
    x = batches[0][0].flatten(1)
    for pair, plane in enumerate(random_planes(model, pairs=3)):
        curvature = sum(
            float(((x @ d["1.weight"].T) ** 2).sum()) / len(x)
            for d in (plane.first, plane.second)
        )
        expected = [radius**2 / 4 * curvature for radius in result.radius]
        np.testing.assert_allclose(result.rise.by_unit[pair], expected, rtol=1e-9)
    np.testing.assert_allclose(result.rise, result.rise.by_unit.mean(0), rtol=1e-12)


@pytest.mark.parametrize("treatment", ["frozen", "reestimated"])
def test_every_point_is_at_its_distance(normalized, treatment):
    """Against a surface that has the same points on its grid, for each treatment."""
    model, batches = normalized
    result = loss_by_distance(model, batches, angles=4, run=Run(seed=1))
    assert len(result) == 2 * 3
    planes = random_planes(model, points=5, pairs=3, seed=1)
    surface = landscape(model, batches, planes, batch_norm=treatment)
    (row,) = np.flatnonzero((result.batch_norm == treatment) & (result.radius == 0.5))
    on_circle = np.isclose(np.hypot(surface.a, surface.b), 0.5)
    on_circle &= np.isclose(surface.a * surface.b, 0)
    for pair, rise in enumerate(result.rise.by_unit[:, row]):
        points = surface.nll[on_circle & (surface.pair == pair)]
        assert len(points) == 4
        assert rise == pytest.approx(points.mean() - surface.nll[12], rel=1e-9)


def test_a_model_without_batch_norm_has_the_same_rows_for_both_treatments(linear):
    model, batches = linear
    result = loss_by_distance(model, batches, angles=4, loss=squares)
    estimated, frozen = result.answers()
    assert frozen.value == estimated.value
    assert frozen.quantity.endswith("at filter-normalized distance 0.5 (BatchNorm frozen)")
    assert len(result.findings()) == 3
    assert "BatchNorm" not in str(result.findings()[0])


def test_the_interval_of_a_difference_covers_it_where_directions_are_no_pairs():
    rng, inside, simulations = np.random.default_rng(0), 0, 500
    for _ in range(simulations):
        images, answers = rng.normal(size=(1, 30)), []
        for value in (0.0, 0.7):
            rises = value + images + rng.normal(size=(4, 1)) + 0.5 * rng.normal(size=(4, 30))
            made = crossed_mean(rises)
            ends = {"low": made.low, "high": made.high, "by_unit": made.by_unit}
            answers.append(Answer("", "", made, **ends, comparison="independent"))
        made = difference(*answers)
        assert made == pytest.approx(answers[1].value - answers[0].value)
        inside += made.low <= 0.7 <= made.high
    assert 0.94 <= inside / simulations <= 1  # too wide: both models have the same images


@pytest.mark.parametrize(
    ("directions", "images", "residual"), [(0.0, 1.0, 0.3), (1.0, 0.0, 0.3), (1.0, 3.0, 1.0)]
)
def test_the_interval_covers_the_mean_over_all_directions_and_images(
    directions, images, residual
):
    rng, inside, simulations = np.random.default_rng(0), 0, 500
    for _ in range(simulations):
        values = directions * rng.normal(size=(3, 1)) + images * rng.normal(size=(1, 30))
        made = crossed_mean(values + residual * rng.normal(size=(3, 30)))
        inside += made.low <= 0 <= made.high
    assert 0.92 <= inside / simulations <= 0.99


def test_the_interval_is_that_of_the_mean_squares_of_crossed_effects():
    rng, (p, n) = np.random.default_rng(0), (4, 30)
    values = rng.normal(size=(p, 1)) + rng.normal(size=(1, n)) + rng.normal(size=(p, n))
    pairs, images = n * values.mean(1).var(ddof=1), p * values.mean(0).var(ddof=1)
    rest = values.size * values.var() - (p - 1) * pairs - (n - 1) * images
    variance = (pairs + images - rest / ((p - 1) * (n - 1))) / values.size
    of_pairs, of_images = stats.t.ppf(0.975, [p - 1, n - 1])
    quantile = (of_pairs * pairs + of_images * images) / (pairs + images)
    made = crossed_mean(values)
    assert made.high - made == pytest.approx(quantile * variance**0.5)


def test_without_differences_between_images_it_is_students():
    means = np.array([1.0, 2.0, 4.0])
    made = crossed_mean(np.repeat(means[:, None], 8, axis=1))
    low, high = stats.t.interval(0.95, 2, means.mean(), means.std(ddof=1) / 3**0.5)
    assert (made.low, made.high) == (pytest.approx(low), pytest.approx(high))
    few = crossed_mean(np.ones((2, 8)))
    assert (np.isnan(few.low), few.missing) == (True, "fewer than 3 direction pairs")


def rings_of(values, radii=(0.5,)):
    """Hand-made circles: a list of pair means by distance for each treatment."""
    rises = [np.asarray(v, dtype=float) for by_radius in values.values() for v in by_radius]
    numbers = [crossed_mean(np.repeat(rise[:, None], 8, axis=1)) for rise in rises]
    return LossByDistance(
        batch_norm=np.repeat(list(values), len(radii)),
        radius=np.tile(radii, len(values)),
        rise=stacked(numbers),
        pairs=len(rises[0]),
        has_batch_norm=len(values) > 1,
    )


@pytest.mark.parametrize(
    ("factor", "codes"),
    [(10.0, ["VP105"]), (1.6, ["VP105"]), (1.5, []), (1.0, []), (0.0, ["VP105"]), (np.inf, [])],
)
def test_treatments_that_disagree_are_a_finding(factor, codes):
    frozen = np.array([2.0, 4, 9])
    result = rings_of({"frozen": [factor * frozen], "reestimated": [frozen]})
    assert [f.code for f in result.findings() if f.code] == codes
