"""Laws of quantization sensitivity."""

import numpy as np
import pytest
import torch
from maps import small_resnet, small_vit
from torch import nn
from torch.nn import functional
from unusual_modules import built

from visprism import Quantization, dissect
from visprism.anatomy.run.ablations import quantized


def resnet():
    return small_resnet(layers=(1, 1, 2, 1), num_classes=5)


def vit():
    model = small_vit(num_classes=5)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


@pytest.fixture(params=[resnet, vit])
def network(request):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, images = request.param(), torch.randn(12, 3, 32, 32)
    targets = torch.arange(12) % 5
    return dissect(model, images), list(zip(images.split(5), targets.split(5), strict=True))


def sensitivity(anatomy, batches, *bits):
    return Quantization(bits=bits)(anatomy, batches)


def test_it_is_the_quantization_of_torch():
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(6, 10, generator=generator)
    for bits in (4, 8):
        levels = 2 ** (bits - 1) - 1
        scale, zero = weight.abs().amax(1) / levels, torch.zeros(6, dtype=torch.int32)
        grid = scale, zero, 0, -levels, levels
        expected = torch.fake_quantize_per_channel_affine(weight, *grid)
        torch.testing.assert_close(quantized(weight, bits), expected)


def test_quantized_weights_lose_nothing(network):
    anatomy, batches = network
    model = anatomy.model
    result = sensitivity(anatomy, batches, 4)
    assert np.abs(result.nll_rise).max() > 1e-3
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.data = quantized(parameter.data, 4)
    again = sensitivity(dissect(model, batches[0][0]), batches, 4)
    assert np.abs(again.nll_rise).max() < 1e-5
    assert np.abs(again.weight_error).max() < 1e-12


def test_a_block_is_that_of_modules_rounded_by_hand(network):
    anatomy, batches = network
    model = anatomy.model
    vit = hasattr(model, "blocks")
    name, modules = (
        ("blocks.1.mlp", [model.blocks[1].mlp.fc1, model.blocks[1].mlp.fc2])
        if vit
        else ("layer3.1", [model.layer3[1].conv1, model.layer3[1].conv2])
    )
    result = sensitivity(anatomy, batches, 3)
    images, targets = (torch.cat(parts) for parts in zip(*batches, strict=True))
    for module in modules:
        weight = module.weight.detach()
        axes = tuple(range(1, weight.ndim))
        step = weight.abs().amax(axes, keepdim=True) / 3
        module.weight.data = torch.round(weight / step) * step
    with torch.no_grad():
        nll = functional.cross_entropy(model(images), targets).item()
    rise = nll - result.baseline_nll
    assert result.nll_rise[result.block == name].item() == pytest.approx(rise, abs=1e-5)
    assert result.drop == pytest.approx(result.baseline_accuracy - result.accuracy)


def test_a_weight_that_blocks_share_is_rounded_in_each_of_them():
    anatomy = dissect(built("shared block"), torch.zeros(2, 3, 16, 16))
    images = torch.randn(10, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    result = sensitivity(anatomy, [(images, torch.arange(10))], 2)
    rises = result.nll_rise[1:-1]  # of the block, of another one and of the block again
    assert len(rises) == 3
    assert np.abs(rises).min() > 1e-4
    assert rises[0] == pytest.approx(rises[2], abs=1e-6)
