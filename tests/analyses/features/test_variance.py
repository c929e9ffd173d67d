"""Laws of the feature-map variance (src/visprism/analyses/features/variance.py)."""

from functools import partial

import numpy as np
import pytest
import torch
from maps import error_of, measure, results_of

from visprism import Variance

variances = partial(measure, Variance())


def test_a_map_of_one_position_has_none_to_speak_of(noise):
    result = variances(noise(2, 3, 1, 1), noise(2, 3, 1, 1))
    for column in (result.variance, result.relative, result.change, result.variance.low):
        assert np.isnan(column).all()


def test_channels_that_are_zero_in_all_images_are_dead(noise):
    x = noise(5, 8, 4, 4)
    x[:, 1] = 0
    x[:, 6] = 0
    x[1:, 3] = 0  # not in the first image
    result = variances(x, noise(5, 4, 4, 4))
    assert result.dead_channels.tolist() == [2 / 8, 0]
    assert variances(0 * x, 0 * x).dead_channels.tolist() == [1, 1]
    (finding,) = (f for f in result.findings() if f.code == "VP108")
    assert finding.text.endswith("1 of 2 blocks (block0)")


def test_blocks_that_change_nothing_are_named_and_those_that_move_features_are_not(noise):
    x = noise(5, 3, 4, 4)
    result = variances(x, x, x.roll(1, 3), -x.roll(1, 3), x.flip(1))
    (finding,) = (f for f in result.findings() if f.code == "VP109")
    assert finding.text.endswith("1 of 5 blocks (block1)")
    np.testing.assert_allclose(result.change[1:], 0, atol=1e-12)  # which says nothing


def test_the_change_of_features_is_that_of_their_differences(noise):
    x, step = noise(400, 3, 8, 8), noise(400, 3, 8, 8)
    change = variances(x, x + step).feature_change
    assert np.isnan(change[0])
    # 400 images of 8 projections each: a standard error of 1 / sqrt(2 * 3200) = 1.3%.
    truth = (step.square().mean() / x.square().mean()).sqrt().item()
    assert change[1] == pytest.approx(truth, rel=0.08)


def test_the_change_in_logs_is_the_mean_log_ratio_over_images(noise):
    x, y = noise(7, 3, 4, 4) + 1, 2 * noise(7, 3, 4, 4)
    before, after = (m.numpy().var((2, 3)).mean(1) for m in (x, y))
    ratio = np.log(after / before)
    squares = [(m.numpy() ** 2).mean((1, 2, 3)) for m in (x, y)]
    scale_free = ratio - np.log(squares[1] / squares[0])
    by_kind = results_of(Variance(), x, y, kinds=["stem", "mlp"])[-1]
    for row, values in enumerate((ratio, scale_free)):
        assert by_kind.mean[row] == pytest.approx(values.mean())
        error = values.std(ddof=1) / 7**0.5
        assert error_of(by_kind.mean, 7)[row] == pytest.approx(error)


def test_agrees_with_numpy(noise):
    x = noise(5, 3, 6, 9) * torch.arange(1, 6)[:, None, None, None] + 2
    per_image = x.numpy().var((2, 3), ddof=1).mean(1)
    result = variances(x)
    assert result.variance.item() == pytest.approx(per_image.mean())
    assert error_of(result.variance, 5).item() == pytest.approx(per_image.std(ddof=1) / 5**0.5)
    assert result.relative.item() == pytest.approx(per_image.mean() / (x.numpy() ** 2).mean())


def test_float32_keeps_its_digits_beside_a_large_mean(noise):
    x = (noise(4, 3, 56, 56) + 1e4).float()
    exact = x.numpy().astype(float).var((2, 3), ddof=1).mean()
    assert variances(x).variance.item() == pytest.approx(exact, rel=1e-5)


def test_errors_of_ratios_agree_with_the_jackknife(noise):
    n = 300
    scale = 1 + 0.3 * noise(n, 1, 1, 1)
    x = noise(n, 2, 4, 4) * scale + 1
    y = 0.5 * x + 0.2 * noise(n, 2, 4, 4)
    before, after = (m.numpy().var((2, 3), ddof=1).mean(1) for m in (x, y))
    square = (y.numpy() ** 2).mean((1, 2, 3))

    def jackknife(a, b):
        left_out = (a.sum() - a) / (b.sum() - b)
        return np.sqrt((n - 1) * left_out.var())

    result = variances(x, y)
    assert result.change[1] == pytest.approx(after.sum() / before.sum() - 1)
    # Both are approximations of order 1/n; measured apart by less than 1%.
    assert error_of(result.change, n)[1] == pytest.approx(jackknife(after, before), rel=0.02)
    assert error_of(result.relative, n)[1] == pytest.approx(jackknife(after, square), rel=0.02)


def test_change_is_unknown_where_the_grid_differs_or_nothing_varied_before(noise):
    uniform = torch.ones(2, 3, 4, 4, dtype=torch.float64)
    result = variances(noise(2, 3, 8, 8), uniform, noise(2, 3, 4, 4), noise(2, 3, 4, 4))
    assert np.isnan(result.change).tolist() == [True, True, True, False]
    assert np.isnan(result.change.low).tolist() == [True, True, True, False]
