"""Tests of reliability diagrams, risk-coverage curves and temperature scaling."""

import numpy as np
import pytest
import torch

from visprism.core.errors import InputError
from visprism.measure.outputs import (
    Predictions,
    calibration,
    outcomes,
    reliability,
    risk_coverage,
    temperature,
)

# Closed forms.


def test_a_reliability_diagram_by_hand(by_hand):
    found = reliability(by_hand([0.2, 0.25, 0.5, 1.0, 1.0], [1, 0, 1, 1, 0]), bins=4)
    np.testing.assert_array_equal(found.lower, [0, 0.25, 0.5, 0.75])
    np.testing.assert_array_equal(found.upper, [0.25, 0.5, 0.75, 1])
    np.testing.assert_array_equal(found.count, [2, 1, 0, 2])
    np.testing.assert_array_equal(found.frequency, [0.4, 0.2, 0, 0.4])
    np.testing.assert_allclose(found.accuracy, [0.5, 1, np.nan, 0.5])
    np.testing.assert_allclose(found.confidence, [0.225, 0.5, np.nan, 1], rtol=1e-6)


def test_a_confidence_of_0_stands_in_the_first_bin(by_hand):
    assert reliability(by_hand([0.0, 1.0], [0, 1])).count.tolist() == [1, *[0] * 8, 1]


def test_risk_rises_from_none_to_the_error_rate_where_the_surest_are_right(by_hand):
    found = risk_coverage(by_hand([0.9, 0.8, 0.7, 0.6], [1, 1, 0, 0]))
    np.testing.assert_allclose(found.coverage, [0.25, 0.5, 0.75, 1])
    np.testing.assert_allclose(found.risk, [0, 0, 1 / 3, 1 / 2])
    np.testing.assert_allclose(found.confidence, [0.9, 0.8, 0.7, 0.6], rtol=1e-6)
    assert found.aurc == pytest.approx((1 / 3 + 1 / 2) / 4)


def test_where_all_are_equally_sure_the_risk_is_the_error_rate(by_hand):
    found = risk_coverage(by_hand([0.8] * 9, [1, 0, 0] * 3))
    np.testing.assert_allclose(found.risk, 2 / 3)


@pytest.mark.parametrize(("points", "rows"), [(1, 1), (7, 7), (1000, 400)])
def test_a_curve_has_as_many_points_as_asked_for_and_ends_with_all_images(drawn, points, rows):
    found = risk_coverage(drawn(400), points=points)
    assert len(found) == rows
    assert found.coverage[-1] == 1


@pytest.mark.parametrize("factor", [0.25, 3.0])
def test_the_temperature_undoes_a_factor_on_the_logits(drawn, factor):
    true = drawn(6000, 5)
    base, _ = temperature(true, seed=1)
    found, scaled = temperature(Predictions(true.logits * factor, true.targets), seed=1)
    assert base.temperature == pytest.approx(1, abs=0.08)  # by chance
    assert found.temperature == pytest.approx(factor * base.temperature, rel=1e-5)
    assert found.nll_after < found.nll_before
    assert found.ece_after < found.ece_before
    assert len(scaled) == found.images == 3000


@pytest.mark.parametrize("members", [1, 3])
def test_no_other_temperature_has_a_lower_nll_on_the_part_it_is_fitted_on(drawn, members):
    predictions = drawn(600, 4, scale=3.0, members=members, seed=2)
    doubled = Predictions(2 * predictions.logits, predictions.targets)
    found, _ = temperature(doubled, fitted_fraction=0.999)  # all but one
    tried = [0.9, 0.99, 1.0, 1.01, 1.1]
    nll = [
        outcomes(
            Predictions(doubled.logits / (found.temperature * t), doubled.targets)
        ).nll.mean()
        for t in tried
    ]
    assert int(np.argmin(nll)) == 2


def test_the_part_that_is_measured_is_not_the_part_that_is_fitted(drawn):
    predictions = drawn(100)
    _, scaled = temperature(predictions, fitted_fraction=0.3)
    assert len(scaled) == 70
    found, _ = temperature(predictions, fitted_fraction=0.3, seed=1)
    assert found.provenance.seed == 1


def test_the_interval_of_the_temperature_holds_the_truth_in_95_percent(drawn):
    inside = 0
    for seed in range(120):
        true = drawn(400, 4, seed=seed)  # targets are drawn from the softmax of these logits
        found, _ = temperature(Predictions(2 * true.logits, true.targets), seed=seed)
        inside += found.temperature_low <= 2 <= found.temperature_high
    assert 105 <= inside <= 119  # 114 expected, deviation 2.4


def test_the_change_of_the_nll_is_paired(drawn):
    predictions = drawn(400, 4)
    result, scaled = temperature(Predictions(2 * predictions.logits, predictions.targets))
    rest = Predictions(scaled.logits * result.temperature, scaled.targets)
    change = outcomes(scaled).nll - outcomes(rest).nll
    assert result.nll_change == pytest.approx(change.mean(), rel=1e-4)
    half = 1.96 * change.std(ddof=1) / np.sqrt(200)
    assert result.nll_change_high - result.nll_change == pytest.approx(half, rel=1e-3)
    fitted, effect = (finding.text for finding in result.findings())
    assert fitted.startswith(f"temperature {result.temperature:.3g} [")
    assert "fitted on 200 images" in fitted
    assert "not significant" not in effect  # the logits were doubled


# Consistency.


def test_the_diagram_the_curve_and_the_metrics_agree(drawn):
    predictions = drawn(500)
    metrics = calibration(predictions, resamples=0)
    assert reliability(predictions).ece == pytest.approx(metrics.of("ece"))
    assert risk_coverage(predictions).aurc == pytest.approx(metrics.of("aurc"))


# Errors.


def test_parts_that_cannot_be_are_refused(drawn):
    predictions = drawn(10)
    with pytest.raises(
        InputError,
        match=r"fitted_fraction must leave at least one image .*, got 0\.0 of 10 images",
    ):
        temperature(predictions, fitted_fraction=0.0)
    with pytest.raises(InputError, match="points must be at least 1, got 0"):
        risk_coverage(predictions, points=0)
    with pytest.raises(InputError, match="bins must be an integer of at least 1, got 0"):
        reliability(predictions, bins=0)


def test_where_no_finite_temperature_is_best_it_says_why():
    right = torch.eye(4).repeat(5, 1)
    targets = torch.arange(4).repeat(5)
    with pytest.raises(
        InputError, match=r"at least one of the 10 images .* highest at temperature 0"
    ):
        temperature(Predictions(2 * right, targets))
    with pytest.raises(InputError, match=r"better than by chance, .* infinite temperature"):
        temperature(Predictions(-2 * right, targets))
