"""Flip rates along sequences."""

import numpy as np
import pytest
import torch
from classifiers_by_hand import Brightest, colors
from scipy import stats

from visprism import stability

MODEL = Brightest().eval()


def test_flips_count_against_the_frame_before_and_of_noise_against_the_first():
    frames = torch.stack([colors(0, 0, 1, 1, 0), colors(2, 2, 2, 2, 2)])
    result = stability(MODEL, {"rotate": [frames], "shot_noise": [frames]})
    np.testing.assert_allclose(result.flip_rate, [(2 / 4 + 0) / 2, (2 / 4 + 0) / 2])
    back = torch.stack([colors(0, 1, 0, 1, 0)])
    result = stability(MODEL, {"rotate": [back], "shot_noise": [back]})
    np.testing.assert_allclose(result.flip_rate, [1, 1 / 2])
    assert result.mean_flip_rate == 0.75
    assert np.isnan(result.flip_rate.low).all()  # of one image
    assert result.mean_flip_rate.by_unit.tolist() == [0.75]
    assert result.provenance.images == 1


def test_the_interval_is_over_images_not_over_frames():
    # Half of the images flip in every frame: the deviation of their mean is 0.5 / sqrt(n - 1).
    frames = torch.stack([colors(0, 1, 0, 1), colors(2, 2, 2, 2)] * 50)
    result = stability(MODEL, {"tilt": frames.split(30)})
    half = stats.t.ppf(0.975, 99) * 0.5 / np.sqrt(99)
    assert result.flip_rate.low[0] == pytest.approx(0.5 - half)
    assert result.flip_rate.high[0] == pytest.approx(0.5 + half)
    assert result.mean_flip_rate.low == result.flip_rate.low[0]


def test_without_any_flip_the_interval_does_not_shrink_to_a_point():
    frames = torch.stack([colors(1, 1, 1)] * 40)
    result = stability(MODEL, {"tilt": [frames]})
    expected = stats.binomtest(0, 40).proportion_ci(method="exact")
    ends = result.flip_rate.low[0], result.flip_rate.high[0]
    assert ends == pytest.approx((0, expected.high))
