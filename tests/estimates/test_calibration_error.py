"""Bias and interval of the ECE (src/visprism/estimates/calibration_error.py)."""

from collections.abc import Callable
from dataclasses import fields

import numpy as np
import pytest
from scipy import stats

from visprism.core.statistics import NORMAL_95, wilson
from visprism.estimates.calibration_error import Bins, _absolute_deviation, calibration_error


def sample(generator: np.random.Generator, images: int, gap: float):
    """Confidences of a binary model, and correctness with probability confidence - gap."""
    logits = 2 + 1.5 * generator.normal(size=images)
    confidence = (1 / (1 + np.exp(-np.abs(logits)))).clip(0.5, 0.9999)
    correct = generator.random(images) < confidence - gap
    return confidence.astype(np.float32), correct


@pytest.mark.parametrize(
    ("n", "p", "a"), [(1, 0.9, 0.95), (7, 0.3, 2.2), (40, 0.98, 39.0), (5, 1.0, 4.5)]
)
def test_mean_and_variance_of_the_deviation_are_sums_over_the_binomial(
    n: int, p: float, a: float
):
    k = np.arange(n + 1)
    weights = stats.binom.pmf(k, n, p)
    mean = (weights * np.abs(k - a)).sum()
    variance = (weights * (np.abs(k - a) - mean) ** 2).sum()
    moments = _absolute_deviation(*(np.array([[float(x)]]) for x in (n, p, a)))
    assert moments[0].item() == pytest.approx(mean, abs=1e-12)
    assert moments[1].item() == pytest.approx(variance, abs=1e-10)


def test_ece_by_hand():
    confidence = np.array([0.95, 0.95, 0.85, 0.65], np.float32)
    ece = calibration_error(confidence, np.array([True, False, True, False]))
    assert ece.value == pytest.approx((0.9 + 0.15 + 0.65) / 4, abs=1e-6)


@pytest.mark.usefixtures("unchecked")
def test_the_expected_ece_of_a_calibrated_model_is_that_of_simulated_targets():
    generator = np.random.default_rng(0)
    confidence, correct = sample(generator, 200, 0)
    bins = simulated(lambda: (confidence, generator.random(200) < confidence), 1000)
    expected = calibration_error(confidence, correct).calibrated
    # Within a bin the confidences differ, so that the binomial is slightly too wide.
    assert expected == pytest.approx(bins.ece.mean(), rel=0.03)


def simulated(draw: Callable[[], tuple[np.ndarray, np.ndarray]], samples: int) -> Bins:
    """Bins of many samples, one a row."""
    rows = [Bins.of(*draw(), 10) for _ in range(samples)]
    return Bins(*(np.concatenate([getattr(r, f.name) for r in rows]) for f in fields(Bins)))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("images", "gap"), [(256, 0.078), (2000, 0.078), (512, 0.04)])
def test_the_debiased_ece_is_nearly_unbiased(images: int, gap: float):
    generator = np.random.default_rng(2)
    bins = simulated(lambda: sample(generator, images, gap), 400)
    assert bins.intervals()[0].mean() == pytest.approx(gap, abs=0.005)


def covered(bins: Bins, truth: float) -> float:
    low, high = (bins.model_ece(bins.threshold(d)) for d in (NORMAL_95, -NORMAL_95))
    return float(((low <= truth) & (truth <= high)).mean())


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("images", "gap"), [(100, 0.0), (256, 0.078)])
def test_the_interval_holds_the_ece_of_the_model_in_95_percent(images: int, gap: float):
    generator = np.random.default_rng(3)
    bins = simulated(lambda: sample(generator, images, gap), 800)
    assert 0.92 <= covered(bins, gap) <= 0.98


def test_contributions_add_up_to_the_ece_where_every_bin_is_far_off():
    generator = np.random.default_rng(5)
    confidence, correct = sample(generator, 50_000, 0.3)
    error = calibration_error(confidence, correct)
    gaps = confidence.astype(float) - correct
    assert gaps.mean() == pytest.approx(error.value, abs=1e-6)
    np.testing.assert_allclose(
        error.debiased.by_unit - error.debiased, gaps - gaps.mean(), atol=1e-12
    )


def test_images_of_a_calibrated_bin_contribute_nothing():
    confidence = np.full(40, 0.75, np.float32)
    error = calibration_error(confidence, np.arange(40) < 30)
    assert not error.debiased.by_unit.any()


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("confidence", "accuracy"), [(0.95, 0.85), (0.99999, 0.9), (1.0, 0.9), (0.75, 0.75)]
)
def test_the_interval_holds_also_where_all_confidences_are_equal(
    confidence: float, accuracy: float
):
    generator = np.random.default_rng(8)
    column = np.full(100, confidence, np.float32)
    bins = simulated(lambda: (column, generator.random(100) < accuracy), 800)
    assert covered(bins, abs(float(column[0]) - accuracy)) >= 0.92


def test_a_model_that_is_always_right_with_confidence_1_has_the_upper_end_of_its_error_rate():
    """Wilson's upper end of 0 wrong predictions: z^2 / (n + z^2)."""
    error = calibration_error(np.ones(200, np.float32), np.ones(200, bool))
    (low,), (high,) = wilson(np.array([0]), np.array([200]))
    assert error.value == error.debiased.low == low == 0
    assert error.debiased.high == pytest.approx(high, rel=0.05)


def test_confidences_of_1_have_an_interval_like_that_of_the_accuracy():
    error = calibration_error(np.full(100, 1, np.float32), np.arange(100) < 90)
    low, high = wilson(np.array([10]), np.array([100]))
    assert (error.debiased.low, error.debiased.high) == pytest.approx(
        (low.item(), high.item()), abs=1e-6
    )
    assert error.calibrated == 0


def test_a_gap_of_0_has_an_interval_above_0():
    error = calibration_error(np.full(100, 0.75, np.float32), np.arange(100) < 75)
    assert error.value == error.debiased.low == 0
    assert 0.06 < error.debiased.high < 0.15


@pytest.mark.parametrize(("images", "given"), [(99, False), (100, True)])
@pytest.mark.parametrize("wrong", [0, 4, 50])
def test_there_is_an_interval_from_100_images_on_however_many_are_wrong(
    images: int, *, given: bool, wrong: int
):
    confidence = np.full(images, 0.9, np.float32)
    error = calibration_error(confidence, np.arange(images) >= wrong)
    assert (np.isfinite([error.debiased.low, error.debiased.high]) == given).all()
    assert np.isfinite([error.value, error.debiased, error.calibrated]).all()


def test_a_model_without_errors_has_the_interval_of_its_mean_confidence():
    confidence = np.random.default_rng(12).beta(20, 2, 400).astype(np.float32)
    error = calibration_error(confidence, np.ones(400, bool))
    mean, half = 1 - confidence.mean(), 1.96 * stats.sem(confidence)
    assert error.debiased == pytest.approx(mean, abs=1e-5)
    assert error.debiased.high == pytest.approx(mean + half, rel=0.01)
    assert error.debiased.low < mean - half  # of an accuracy below 1
