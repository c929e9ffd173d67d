"""Laws of a model's cost (src/visprism/passes/forward_passes.py)."""

import math
import time

import torch
from internals import model_cost, stream
from torch import nn

from visprism import MODELS, costs, dissect

ATTENDS = "vit_pico_patch4_32"


def test_a_linear_layer_costs_its_weights():
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 5)).eval()
    cost = model_cost(model, torch.zeros(3, 3, 2, 2))
    assert (cost.parameters, cost.macs) == (12 * 5 + 5, 12 * 5)


def test_frozen_and_shared_parameters_count_once_and_statistics_do_not():
    model = nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 3, 1))
    model[3].weight = model[0].weight
    model[1].bias.requires_grad = False
    images = torch.zeros(2, 3, 4, 4)
    expected = 9 + 3 + 3 + 3 + 3
    assert model_cost(model.eval(), images, repeats=0).parameters == expected
    assert costs(dissect(model, images)).distinct_parameters == expected


def test_the_speed_is_that_of_the_clock():
    seconds = 0.02

    class Sleeper(nn.Module):
        def forward(self, x):
            time.sleep(seconds)
            return x

    cost = model_cost(Sleeper().eval(), torch.zeros(4, 3, 2, 2))
    assert 0.3 * 4 / seconds < cost.images_per_second <= 4 / seconds


def test_counts_what_the_blocks_cost_together():
    model = MODELS[ATTENDS]().eval()
    x = torch.randn(2, 3, 32, 32, generator=stream(0, "x"))
    assert model_cost(model, x, repeats=0).macs == costs(dissect(model, x)).macs.sum()


def test_the_meta_device_counts_the_same_without_arithmetic():
    real = model_cost(MODELS[ATTENDS]().eval(), torch.zeros(1, 3, 32, 32), repeats=0)
    with torch.device("meta"):
        cost = model_cost(MODELS[ATTENDS]().eval(), torch.zeros(1, 3, 32, 32), repeats=0)
    assert (cost.parameters, cost.macs) == (real.parameters, real.macs)
    assert math.isnan(cost.images_per_second)
