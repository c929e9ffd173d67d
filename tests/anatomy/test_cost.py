"""Laws of cost: parameters and multiply-accumulates by hand, and as published."""

import numpy as np
import pytest
import timm
import torch
import torchvision
from torch import nn

from visprism import costs, dissect


def cost_of(model, side):
    return costs(dissect(model.eval(), torch.zeros(2, 3, side, side)))


def test_a_convolution_and_a_linear_map_by_hand():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),  # 8 x 3 x 3 x 3 weights at each of 16 x 16 places
        nn.ReLU(),
        nn.Conv2d(8, 4, 5, stride=2, padding=2, groups=2, bias=False),
        nn.Flatten(),
        nn.Linear(4 * 8 * 8, 10),
    )
    cost = cost_of(model, 16)
    assert list(cost.macs) == [8 * 27 * 256, 4 * 4 * 25 * 64, 2560]
    assert list(cost.parameters) == [8 * 27 + 8, 4 * 4 * 25, 2560 + 10]
    assert list(cost.channels) == [8, 4, 10]
    assert list(cost.height) == [16, 8, 1]  # the logits lie on no grid
    assert list(cost.width) == [16, 8, 1]


def test_frozen_and_shared_parameters_count_once_and_statistics_do_not():
    model = nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 3, 1))
    model[3].weight = model[0].weight
    model[1].bias.requires_grad = False
    assert cost_of(model, 4).distinct_parameters == 9 + 3 + 3 + 3 + 3


@torch.inference_mode()
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("resnet10t", {}),
        ("vit_tiny_patch16_224", {"depth": 1, "img_size": 64}),
        ("swin_tiny_patch4_window7_224", {"depths": (2,), "img_size": 64}),
    ],
)
def test_inference_mode_counts_the_same(name, options):
    model = timm.create_model(name, **options)
    with torch.inference_mode(mode=False):
        expected = cost_of(model, 64)
    assert list(cost_of(model, 64).macs) == list(expected.macs)


def test_a_vision_transformer_by_hand():
    n, d = 14 * 14 + 1, 192  # ViT-Ti/16: tokens, width
    attention = n * d * 3 * d + 2 * n * n * d + n * d * d
    mlp = 2 * n * d * 4 * d
    cost = cost_of(timm.create_model("vit_tiny_patch16_224"), 224)
    assert list(cost.macs) == [14 * 14 * d * 3 * 16 * 16, *[attention, mlp] * 12, d * 1000]
    assert cost.macs.sum() == pytest.approx(1.25e9, rel=0.005)  # with attention's products
    assert cost.parameters.sum() == 5_717_416
    norm, table = 2 * d, n * d
    assert list(cost.parameters) == [
        3 * 16 * 16 * d + d + d + table,  # patches, class token, positions
        *[norm + 3 * d * d + 3 * d + d * d + d, norm + 8 * d * d + 5 * d] * 12,
        norm + d * 1000 + 1000,
    ]


@pytest.mark.parametrize(
    ("make", "gates", "two_ways"), [(nn.LSTM, 4, True), (nn.GRU, 3, False), (nn.RNN, 1, True)]
)
def test_a_recurrence_by_hand(make, gates, two_ways):
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Conv2d(3, 6, 4, stride=4)
            self.over = make(6, 5, batch_first=True, bidirectional=two_ways)
            self.head = nn.Linear(10 if two_ways else 5, 7)

        def forward(self, x):
            tokens = self.patches(x).flatten(2).transpose(1, 2)
            return self.head(self.over(tokens)[0].mean(1))

    ways = 2 if two_ways else 1
    cost = cost_of(Recurrent(), 16)
    assert cost.macs.sum() == 16 * 6 * 48 + 16 * ways * gates * (6 * 5 + 5 * 5) + ways * 5 * 7


@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_flex_attention_costs_what_fused_attention_does():
    from torch.nn.attention.flex_attention import flex_attention

    class Attending(nn.Module):
        def __init__(self, attention):
            super().__init__()
            self.patches, self.out = nn.Conv2d(3, 16, 4, 4), nn.Linear(16, 5)
            self.attention = attention

        def forward(self, x):
            x = self.patches(x).flatten(2).mT[:, None]
            return self.out((x + self.attention(x, x, x)).mean((1, 2)))

    attentions = flex_attention, nn.functional.scaled_dot_product_attention
    flex, fused = (list(cost_of(Attending(attention), 16).macs) for attention in attentions)
    assert flex == fused


@pytest.mark.parametrize(
    "name", ["resnet18", "mobilenet_v2", pytest.param("swin_t", marks=pytest.mark.slow)]
)
def test_torchvision_publishes_the_same_numbers(name):
    weights = next(iter(torchvision.models.get_model_weights(name)))
    cost = cost_of(torchvision.models.get_model(name, weights=None), 224)
    assert cost.parameters.sum() == weights.meta["num_params"]
    assert cost.macs.sum() / 1e9 == pytest.approx(weights.meta["_ops"], abs=5e-3)


def test_four_times_the_pixels_are_four_times_the_work():
    model = timm.create_model("resnet10t", channels=(8, 8, 8, 8))
    small, large = (cost_of(model, side) for side in (64, 128))
    np.testing.assert_equal(large.macs[:-1], 4 * small.macs[:-1])
    np.testing.assert_equal(large.parameters, small.parameters)
