"""Which blocks count as residual Conv blocks (src/visprism/harmonize/blocks.py)."""

import pytest
import timm
import torch
import torchvision
from small_models import Residual
from torch import nn

from visprism import InputError, conv_blocks, load_model


def timms(name, **arguments):
    return lambda: timm.create_model(name, num_classes=5, **arguments)


class ProcessGroup(nn.Module):
    """Two ways from the input, put together by a function of the user's."""

    def __init__(self, join, way):
        super().__init__()
        self.join, self.way, self.norm = join, way, nn.BatchNorm2d(8)
        self.convolve = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x):
        return nn.functional.relu(self.join(self.way(x), self.norm(self.convolve(x.relu()))))


def sums(a, b):
    return a + b


def concatenates(a, b):
    return torch.cat([a[:, :4], b[:, :4]], 1)


@pytest.mark.parametrize(
    ("join", "way", "residual"),
    [
        (sums, nn.Identity(), True),
        (sums, nn.Conv2d(8, 8, 1), True),
        (sums, nn.Sequential(nn.ReLU(), nn.Conv2d(8, 8, 1)), True),  # as before activation
        (sums, nn.Conv2d(8, 8, 3, padding=1), True),  # a projection with a kernel, as SENet-154
        (sums, nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU()), False),
        (concatenates, nn.Identity(), False),
    ],
    ids=["input", "projection", "activated", "kernel", "no shortcut", "concatenation"],
)
def test_a_block_is_residual_if_it_ends_in_a_sum_with_its_input(join, way, residual, images):
    stem, head = nn.Conv2d(3, 8, 3), nn.Sequential(nn.Flatten(2), nn.Linear(900, 1))
    model = nn.Sequential(stem, Residual(), ProcessGroup(join, way), head).eval()
    names = [block.name for block in conv_blocks(model, images)]
    assert names == (["1", "2"] if residual else ["1"])


@pytest.mark.parametrize(
    "make",
    [
        timms("densenet121", growth_rate=8, block_config=(2, 2, 2, 2)),  # it concatenates
        lambda: load_model("vit_pico_patch4_32?img_size=64").model,
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(2), nn.Linear(3844, 1)),
    ],
    ids=["DenseNet", "ViT", "plain CNN"],
)
def test_a_model_without_residual_conv_blocks_is_refused(make):
    with pytest.raises(InputError, match="must have a residual block with a spatial"):
        conv_blocks(make().eval(), torch.zeros(1, 3, 64, 64))


@pytest.mark.parametrize(
    ("make", "number"),
    [
        (timms("resnet26d"), 8),
        (lambda: torchvision.models.mobilenet_v3_small(num_classes=5), 6),
    ],
    ids=["ResNet-D", "torchvision's"],
)
def test_every_shortcut_of_known_networks_is_found(make, number):
    assert len(conv_blocks(make().eval(), torch.zeros(1, 3, 64, 64))) == number
