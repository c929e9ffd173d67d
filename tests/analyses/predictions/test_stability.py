"""Flip rates along sequences, and relative to a reference model."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from classifiers_by_hand import Brightest, colors
from internals import Estimated, relative_flip_rates
from scipy import stats

from visprism import stability


@pytest.fixture
def model():
    return Brightest().eval()


def test_flips_count_against_the_frame_before_and_of_noise_against_the_first(model):
    frames = torch.stack([colors(0, 0, 1, 1, 0), colors(2, 2, 2, 2, 2)])
    result = stability(model, {"rotate": [frames], "shot_noise": [frames]})
    np.testing.assert_allclose(result.flip_rate, [(2 / 4 + 0) / 2, (2 / 4 + 0) / 2])
    np.testing.assert_allclose(result.consistency, [3 / 4, 3 / 4])
    back = torch.stack([colors(0, 1, 0, 1, 0)])
    result = stability(model, {"rotate": [back], "shot_noise": [back]})
    np.testing.assert_allclose(result.flip_rate, [1, 1 / 2])
    np.testing.assert_allclose(result.consistency, [0, 0])
    assert result.mean_flip_rate == 0.75
    assert np.isnan(result.flip_rate.low).all()  # of one image
    assert result.mean_flip_rate.by_unit.tolist() == [0.75]
    assert result.provenance.images == 1


def test_the_interval_is_over_images_not_over_frames(model):
    # Half of the images flip in every frame: the deviation of their mean is 0.5 / sqrt(n - 1).
    frames = torch.stack([colors(0, 1, 0, 1), colors(2, 2, 2, 2)] * 50)
    result = stability(model, {"tilt": frames.split(30)})
    half = stats.t.ppf(0.975, 99) * 0.5 / np.sqrt(99)
    assert result.flip_rate.low[0] == pytest.approx(0.5 - half)
    assert result.flip_rate.high[0] == pytest.approx(0.5 + half)
    assert result.mean_flip_rate.low == result.flip_rate.low[0]


def test_without_any_flip_the_interval_does_not_shrink_to_a_point(model):
    frames = torch.stack([colors(1, 1, 1)] * 40)
    result = stability(model, {"tilt": [frames]})
    expected = stats.binomtest(0, 40).proportion_ci(method="exact")
    ends = result.flip_rate.low[0], result.flip_rate.high[0]
    assert ends == pytest.approx((0, expected.high))


def rates(model):
    """Flip rates of 1/3 and 2/3 along two perturbations."""
    frames = {"tilt": colors(0, 0, 0, 1), "rotate": colors(0, 1, 1, 0)}
    return stability(model, {name: [x[None]] for name, x in frames.items()})


def test_the_relative_rate_is_the_mean_of_ratios_not_the_ratio_of_means(model):
    reference = rates(model)
    factors = np.array([0.5, 2])
    faster = replace(reference, flip_rate=Estimated(factors * reference.flip_rate))
    result = relative_flip_rates(faster, reference)
    np.testing.assert_allclose(result.ratio, factors)
    assert result.mean_ratio == pytest.approx(1.25)
    assert relative_flip_rates(reference, reference).mean_ratio == 1
    still = relative_flip_rates(reference, replace(reference, flip_rate=Estimated([0, 0.5])))
    assert np.isnan([still.ratio[0], still.mean_ratio]).all()
    assert "undefined" in str(still.findings()[0])
