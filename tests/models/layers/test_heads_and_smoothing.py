"""Laws of classifier heads and spatial smoothing (src/visprism/models/layers)."""

import math

import pytest
import torch
from internals import AttentionPool, MeanPool, SpatialSmoothing, stream


def images(*shape):
    return torch.randn(*shape, generator=stream(0, "images"))


@pytest.mark.parametrize("value", [0.5, 10.0, 1000.0])
def test_a_constant_map_is_squashed_and_not_blurred(value):
    smoothed = SpatialSmoothing()(torch.full((1, 2, 3, 4), value))
    expected = torch.full((1, 2, 3, 4), 10 * math.tanh(value / 10))
    torch.testing.assert_close(smoothed, expected)


def test_what_is_below_nought_becomes_nought():
    assert not SpatialSmoothing()(torch.full((1, 1, 3, 3), -2.0)).any()


def test_a_point_is_spread_over_four_pixels():
    image = torch.zeros(1, 1, 4, 4)
    image[0, 0, 2, 2] = 1
    expected = torch.zeros(1, 1, 4, 4)
    expected[0, 0, 1:3, 1:3] = 10 * math.tanh(0.1) / 4
    torch.testing.assert_close(SpatialSmoothing()(image), expected)


def test_a_wave_of_two_pixels_is_gone():
    wave = torch.tensor([1.0, 3.0]).repeat(4).expand(1, 1, 8, 8)
    smoothed = SpatialSmoothing()(wave)[..., :-1]  # the last column sees its own pixels twice
    assert smoothed.std() < 1e-6


def test_the_mean_pool_is_the_mean():
    x = images(2, 3, 4, 5)
    torch.testing.assert_close(MeanPool()(x), x.sum((2, 3)) / 20)


def test_an_attention_pool_does_not_mind_the_order_of_positions():
    pool, x = AttentionPool(128), images(2, 128, 3, 4)
    order = torch.randperm(12, generator=stream(0, "order"))
    moved = x.flatten(2)[..., order].unflatten(2, (4, 3))
    torch.testing.assert_close(pool(moved), pool(x))
