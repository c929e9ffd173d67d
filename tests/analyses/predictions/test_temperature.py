"""Laws of temperature scaling."""

import numpy as np
import pytest
import torch
from classifiers_by_hand import random_predictions
from scipy.stats import t

from visprism import InputError, Predictions, calibration, temperature
from visprism.analyses.predictions.temperature import temperature_if_finite


def frequencies(logit: float, ones: int, images: int) -> Predictions:
    """Logits 0 and `logit` of two classes for each image, of which `ones` are of the second."""
    logits = torch.tensor([0.0, logit], dtype=torch.float64).repeat(images, 1)
    return Predictions(logits, (torch.arange(images) < ones).long())


@pytest.mark.parametrize("factor", [0.2, 7.0])
def test_the_temperature_of_two_classes_is_the_logit_over_the_log_odds(factor):
    # Three of four images are of the second class, so that log 3 is the calibrated logit.
    scaling, _ = temperature(frequencies(factor * np.log(3), 75, 100))
    assert scaling.temperature == pytest.approx(factor, rel=1e-7)
    # The variance of log odds is 1 / (n p (1 - p)); here n is 99, as variances are unbiased.
    error = (99 * 0.75 * 0.25) ** -0.5 / np.log(3)
    ends = factor * np.exp(np.array([-1, 1]) * t.ppf(0.975, 99) * error)
    assert (scaling.temperature.low, scaling.temperature.high) == pytest.approx(ends, rel=1e-3)


@pytest.mark.parametrize("factor", [0.25, 3.0])
def test_the_temperature_undoes_a_factor_on_the_logits(factor):
    true = random_predictions(3000, 5)
    base, calibrated = temperature(true, seed=1)
    given = Predictions(true.logits * factor, true.targets)
    scaling, scaled = temperature(given, seed=1)
    assert base.temperature.low <= 1 <= base.temperature.high
    assert scaling.temperature == pytest.approx(factor * base.temperature, rel=1e-5)
    torch.testing.assert_close(scaled.logits, calibrated.logits, rtol=1e-4, atol=1e-5)
    assert scaling.nll_change == pytest.approx(scaling.nll_after - scaling.nll_before)
    assert scaling.nll_change.high < 0
    ece = [calibration(p).ece for p in (given, scaled)]
    assert [scaling.ece_before, scaling.ece_after] == pytest.approx(ece)
    assert scaling.debiased_after.low == 0 < scaling.debiased_before.low


def test_an_error_that_is_not_of_scale_remains():
    # Every fifth target is wrong: the confident images are too confident, the others are not.
    true = random_predictions(3000, 5, scale=6.0)
    generator = torch.Generator().manual_seed(0)
    noise = torch.rand(3000, generator=generator) < 0.2
    targets = torch.where(noise, (true.targets + 1) % 5, true.targets)
    scaling, _ = temperature(Predictions(true.logits, targets))
    assert scaling.debiased_after.low > 0


def test_no_image_is_scaled_by_a_temperature_that_its_target_has_influenced():
    predictions = random_predictions(60, 4)
    _, scaled = temperature(predictions, folds=10)
    for image in (0, 17):
        targets = predictions.targets.clone()
        targets[image] = (targets[image] + 1) % 4
        _, other = temperature(Predictions(predictions.logits, targets), folds=10)
        torch.testing.assert_close(other.logits[image], scaled.logits[image], rtol=0, atol=0)
        assert not torch.equal(other.logits, scaled.logits)


def test_where_no_finite_temperature_is_best_it_says_why():
    with pytest.raises(InputError, match=r"folds must be between 2 and 10 \(images\), got 1"):
        temperature(random_predictions(10), folds=1)
    right = torch.eye(4).repeat(5, 1)
    targets = torch.arange(4).repeat(5)
    with pytest.raises(InputError, match=r"at least one of the 20 images .* falls to 0"):
        temperature(Predictions(2 * right, targets))
    with pytest.raises(InputError, match=r"better than by chance, .* infinite temperature"):
        temperature(Predictions(-2 * right, targets))
    masked = 2 * right
    masked[:, 2] = -torch.inf  # also of images of this class
    assert temperature_if_finite(Predictions(masked, targets)).reason.startswith(
        "the logit of each target must be finite"
    )
    missing = temperature_if_finite(Predictions(2 * right, targets))
    assert np.isnan(missing.temperature)
    assert missing.answers() == ()
    assert missing.findings()[0].text.startswith("no temperature: at least one of the 20")
