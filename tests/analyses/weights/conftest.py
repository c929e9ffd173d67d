"""Small networks whose first kernels are given."""

import pytest
import torch
from maps import classifier
from torch import nn

from visprism import dissect


@pytest.fixture
def taken_apart():
    """`taken_apart(model, 3, 8, 8)`: the anatomy of a model on images of this shape."""
    return lambda model, *shape: dissect(
        model.double().eval(), torch.zeros(2, *shape, dtype=torch.float64)
    )


@pytest.fixture
def with_kernels(taken_apart):
    """`with_kernels(kernels)`: the anatomy of a network that reads its images with these."""

    def with_kernels(kernels):
        out, channels, height, width = kernels.shape
        conv = nn.Conv2d(channels, out, (height, width))
        conv.weight.data = kernels
        model = classifier(conv, nn.ReLU(), nn.Conv2d(out, out, 1), channels=out)
        return taken_apart(model, channels, 9, 9)

    return with_kernels
