"""Small networks written by hand, so that one with a part taken out can be written as well."""

from functools import cache

import pytest
import timm
import torch
from torch import nn

from visprism import dissect


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.branch = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return x + self.branch(x)


class InPlace(Residual):
    """Its sum overwrites the branch, its activation the sum."""

    def __init__(self, width):
        super().__init__(width)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.branch(x)
        y += x
        return self.act(y)


class OverTheStream(Residual):
    """Its sum overwrites what came in."""

    def forward(self, x):
        branch = self.branch(x)
        x += branch
        return x


class ByAssignment(Residual):
    """Its sum is written into a tensor that stands ready."""

    def forward(self, x):
        out = torch.zeros_like(x)
        out[:] = super().forward(x)
        return out


class Thrice(nn.Module):
    """One module, called three times."""

    def __init__(self, width):
        super().__init__()
        self.block = Residual(width)

    def forward(self, x):
        for _ in range(3):
            x = self.block(x)
        return x


class Functional(nn.Module):
    """No module takes or gives the feature maps."""

    def __init__(self, width):
        super().__init__()
        self.weights = nn.ParameterList(
            torch.randn(width, width, 3, 3) / width for _ in range(2)
        )

    def forward(self, x):
        for weight in self.weights:
            x = x + nn.functional.conv2d(x, weight, padding=1).relu()
        return x


def network(*blocks):
    """Stem, blocks, classifier of the mean."""
    ends = nn.Conv2d(3, 4, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5)
    return nn.Sequential(ends[0], *blocks, *ends[1:])


def small_vit():
    return timm.models.VisionTransformer(
        img_size=16, patch_size=4, embed_dim=12, depth=3, num_heads=2, num_classes=5
    )


BUILDS = {
    "residual": lambda: network(Residual(4), Residual(4)),
    "in place": lambda: network(InPlace(4), InPlace(4)),
    "over the stream": lambda: network(OverTheStream(4), OverTheStream(4)),
    "by assignment": lambda: network(ByAssignment(4), ByAssignment(4)),
    "called thrice": lambda: network(Thrice(4)),
    "functional": lambda: network(Functional(4)),
    "vit": small_vit,
}


@cache
def dissected(name):
    """Dissected once for all tests, which leave it as it was."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = BUILDS[name]().eval()
    return dissect(model, torch.randn(2, 3, 16, 16))


@pytest.fixture
def built():
    """The anatomy of a network, by name."""
    return dissected


@pytest.fixture(params=BUILDS)
def anatomy(request, built):
    """That of each network in turn."""
    return built(request.param)
