"""Tests of reliability diagrams, risk-coverage curves and temperature scaling."""

import numpy as np
import pytest
import torch

from visprism import (
    InputError,
    Predictions,
    calibration,
    outcomes,
    reliability,
    risk_coverage,
    temperature,
)
from visprism.core.statistics import mean_interval
from visprism.analyses.predictions.temperature import temperature_if_finite

# Closed forms.


def test_a_reliability_diagram_by_hand(by_hand):
    diagram = reliability(by_hand([0.2, 0.25, 0.5, 1.0, 1.0], [1, 0, 1, 1, 0]), bins=4)
    np.testing.assert_array_equal(diagram.lower, [0, 0.25, 0.5, 0.75])
    np.testing.assert_array_equal(diagram.upper, [0.25, 0.5, 0.75, 1])
    np.testing.assert_array_equal(diagram.count, [2, 1, 0, 2])
    np.testing.assert_array_equal(diagram.frequency, [0.4, 0.2, 0, 0.4])
    np.testing.assert_allclose(diagram.accuracy, [0.5, 1, np.nan, 0.5])
    np.testing.assert_allclose(diagram.confidence, [0.225, 0.5, np.nan, 1], rtol=1e-6)


def test_a_confidence_of_0_stands_in_the_first_bin(by_hand):
    assert reliability(by_hand([0.0, 1.0], [0, 1])).count.tolist() == [1, *[0] * 8, 1]


def test_risk_rises_from_none_to_the_error_rate_where_the_surest_are_right(by_hand):
    curve = risk_coverage(by_hand([0.9, 0.8, 0.7, 0.6], [1, 1, 0, 0]))
    np.testing.assert_allclose(curve.coverage, [0.25, 0.5, 0.75, 1])
    np.testing.assert_allclose(curve.risk, [0, 0, 1 / 3, 1 / 2])
    np.testing.assert_allclose(curve.confidence, [0.9, 0.8, 0.7, 0.6], rtol=1e-6)
    assert curve.aurc == pytest.approx((1 / 3 + 1 / 2) / 4)


def test_where_all_are_equally_sure_the_risk_is_the_error_rate(by_hand):
    curve = risk_coverage(by_hand([0.8] * 9, [1, 0, 0] * 3))
    np.testing.assert_allclose(curve.risk, 2 / 3)


@pytest.mark.parametrize(("points", "rows"), [(1, 1), (7, 7), (1000, 400)])
def test_a_curve_has_as_many_points_as_asked_for_and_ends_with_all_images(
    random_predictions, points, rows
):
    curve = risk_coverage(random_predictions(400), points=points)
    assert len(curve) == rows
    assert curve.coverage[-1] == 1


def frequencies(logit: float, ones: int, images: int) -> Predictions:
    """Logits 0 and `logit` of two classes for each image, of which `ones` are of the second."""
    logits = torch.tensor([0.0, logit], dtype=torch.float64).repeat(images, 1)
    return Predictions(logits, (torch.arange(images) < ones).long())


@pytest.mark.parametrize("factor", [0.2, 1.0, 7.0])
def test_the_temperature_of_two_classes_is_the_logit_over_the_log_odds(factor):
    # Three of four images are of the second class, so that log 3 is the calibrated logit.
    scaling, _ = temperature(frequencies(factor * np.log(3), 75, 100))
    assert scaling.temperature == pytest.approx(factor, rel=1e-7)


@pytest.mark.parametrize("factor", [0.25, 3.0])
def test_the_temperature_undoes_a_factor_on_the_logits(random_predictions, factor):
    true = random_predictions(3000, 5)
    base, calibrated = temperature(true, seed=1)
    scaling, scaled = temperature(Predictions(true.logits * factor, true.targets), seed=1)
    assert base.temperature_low <= 1 <= base.temperature_high
    assert scaling.temperature == pytest.approx(factor * base.temperature, rel=1e-5)
    torch.testing.assert_close(scaled.logits, calibrated.logits, rtol=1e-4, atol=1e-5)
    assert scaling.nll_after < scaling.nll_before
    assert scaling.debiased_after_low == 0 < scaling.debiased_before_low
    direction, _, remainder = (finding.text for finding in scaling.findings())
    words = "large (overconfident)" if factor > 1 else "small (underconfident)"
    assert direction.endswith(f"fitted on 3,000 images: the logits are too {words}")
    assert remainder.endswith(
        "no significant calibration error remains beside the logits' scale"
    )


def test_an_error_that_is_not_of_scale_remains(random_predictions):
    # Every fifth target is wrong: the confident images are too confident, the others are not.
    true = random_predictions(3000, 5, scale=6.0)
    generator = torch.Generator().manual_seed(0)
    noise = torch.rand(3000, generator=generator) < 0.2
    targets = torch.where(noise, (true.targets + 1) % 5, true.targets)
    scaling, _ = temperature(Predictions(true.logits, targets))
    assert scaling.debiased_after_low > 0
    assert scaling.findings()[-1].text.endswith(
        "a significant calibration error is not one of the logits' scale"
    )


@pytest.mark.parametrize("members", [1, 3])
def test_no_other_temperature_has_a_lower_nll(random_predictions, members):
    predictions = random_predictions(600, 4, scale=3.0, members=members, seed=2)
    doubled = Predictions(2 * predictions.logits, predictions.targets)
    scaling, _ = temperature(doubled)
    tried = [0.9, 0.99, 1.0, 1.01, 1.1]
    nll = [
        outcomes(
            Predictions(doubled.logits / (scaling.temperature * t), doubled.targets)
        ).nll.mean()
        for t in tried
    ]
    assert int(np.argmin(nll)) == 2


def test_no_image_is_scaled_by_a_temperature_that_its_target_has_influenced(random_predictions):
    predictions = random_predictions(60, 4)
    _, scaled = temperature(predictions, folds=60)
    for image in (0, 17):
        targets = predictions.targets.clone()
        targets[image] = (targets[image] + 1) % 4
        _, other = temperature(Predictions(predictions.logits, targets), folds=60)
        torch.testing.assert_close(other.logits[image], scaled.logits[image], rtol=0, atol=0)
        assert not torch.equal(other.logits, scaled.logits)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_the_interval_of_the_temperature_holds_the_truth_in_95_percent(random_predictions):
    inside = 0
    for seed in range(120):
        true = random_predictions(
            200, 4, seed=seed
        )  # targets are drawn from the softmax of these logits
        scaling, _ = temperature(Predictions(2 * true.logits, true.targets), seed=seed)
        inside += scaling.temperature_low <= 2 <= scaling.temperature_high
    assert 105 <= inside <= 119  # 114 expected, deviation 2.4


def test_the_change_of_the_nll_is_paired(random_predictions):
    predictions = random_predictions(400, 4)
    doubled = Predictions(2 * predictions.logits, predictions.targets)
    result, scaled = temperature(doubled)
    change = outcomes(scaled).nll - outcomes(doubled).nll
    assert result.nll_change == pytest.approx(change.mean(), rel=1e-4)
    assert (result.nll_change_low, result.nll_change_high) == mean_interval(change)
    _, effect, _ = (finding.text for finding in result.findings())
    assert "not significant" not in effect  # the logits were doubled
    assert effect.endswith("over 400 images")


# Consistency.


def test_the_diagram_the_curve_and_the_metrics_agree(random_predictions):
    predictions = random_predictions(500)
    metrics = calibration(predictions)
    assert reliability(predictions).ece == pytest.approx(metrics.of("ece"))
    assert risk_coverage(predictions).aurc == pytest.approx(metrics.of("aurc"))


# Errors.


def test_parts_that_cannot_be_are_refused(random_predictions):
    predictions = random_predictions(10)
    with pytest.raises(InputError, match=r"folds must be between 2 and 10 \(images\), got 1"):
        temperature(predictions, folds=1)
    with pytest.raises(InputError, match="points must be at least 1, got 0"):
        risk_coverage(predictions, points=0)
    with pytest.raises(InputError, match="bins must be an integer from 1 to 10000, got 0"):
        reliability(predictions, bins=0)


def test_where_no_finite_temperature_is_best_it_says_why():
    right = torch.eye(4).repeat(5, 1)
    targets = torch.arange(4).repeat(5)
    with pytest.raises(InputError, match=r"at least one of the 20 images .* falls to 0"):
        temperature(Predictions(2 * right, targets))
    with pytest.raises(InputError, match=r"better than by chance, .* infinite temperature"):
        temperature(Predictions(-2 * right, targets))
    missing = temperature_if_finite(Predictions(2 * right, targets))
    assert np.isnan(missing.temperature)
    assert missing.answers() == ()
    assert missing.findings()[0].text.startswith(
        "no temperature: at least one of the 20 images"
    )
