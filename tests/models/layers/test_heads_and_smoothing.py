"""Laws of classifier heads and spatial smoothing (src/visprism/models/layers)."""

import math

import pytest
import torch
from internals import AttentionPool, SpatialSmoothing, stream


def images(*shape):
    return torch.randn(*shape, generator=stream(0, "images"))


@pytest.mark.parametrize("value", [-2.0, 0.5, 1000.0])
def test_a_constant_map_is_rectified_squashed_and_not_blurred(value):
    smoothed = SpatialSmoothing()(torch.full((1, 2, 3, 4), value))
    expected = torch.full((1, 2, 3, 4), 10 * math.tanh(max(value, 0) / 10))
    torch.testing.assert_close(smoothed, expected)


def test_a_point_is_spread_over_four_pixels():
    image = torch.zeros(1, 1, 4, 4)
    image[0, 0, 2, 2] = 1
    expected = torch.zeros(1, 1, 4, 4)
    expected[0, 0, 1:3, 1:3] = 10 * math.tanh(0.1) / 4
    torch.testing.assert_close(SpatialSmoothing()(image), expected)


def test_an_attention_pool_does_not_mind_the_order_of_positions():
    pool, x = AttentionPool(128), images(2, 128, 3, 4)
    order = torch.randperm(12, generator=stream(0, "order"))
    moved = x.flatten(2)[..., order].unflatten(2, (4, 3))
    torch.testing.assert_close(pool(moved), pool(x))
