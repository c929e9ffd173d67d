"""Laws of residual blocks, spatial smoothing and heads (src/visprism/models/layers)."""

import math
from functools import partial

import pytest
import torch
from small_models import noise
from torch import nn

from visprism.models.layers.residual_blocks import (
    MSABlock,
    PostActMSABlock,
    PreActBasic,
    PreActBottleneck,
    SpatialSmoothing,
)

HEADS = {"num_heads": 2, "head_dim": 4, "window": 4}


@pytest.mark.parametrize("make", [PreActBasic, PreActBottleneck, partial(MSABlock, **HEADS)])
def test_a_silent_branch_leaves_the_sum_untouched(make):
    block = make(16, 16)
    for parameter in list(block.parameters())[-2:]:
        nn.init.zeros_(parameter)
    if isinstance(block, MSABlock):
        nn.init.zeros_(block.attn.proj.weight)
        nn.init.zeros_(block.attn.proj.bias)
    x = noise(2, 16, 5, 5)
    torch.testing.assert_close(block(x), x, rtol=0, atol=0)


def test_the_post_activation_block_rectifies_the_shortcut_of_a_silent_branch():
    block = PostActMSABlock(16, 16, **HEADS)
    nn.init.zeros_(block.norm2.weight)
    x = noise(2, 16, 5, 5)
    torch.testing.assert_close(block(x), x.relu(), rtol=0, atol=0)


def test_a_strided_msa_block_averages_what_the_attention_gives():
    block = MSABlock(8, 8, 2, **HEADS).eval()
    given = []
    block.attn.register_forward_hook(lambda _m, _i, output: given.append(output))
    x = noise(1, 8, 4, 4)
    active = block.act1(block.norm1(x))
    branch = block(x) - block.downsample(active)
    by_hand = given[0].unfold(2, 2, 2).unfold(3, 2, 2).mean((-1, -2))
    torch.testing.assert_close(branch, by_hand)


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
