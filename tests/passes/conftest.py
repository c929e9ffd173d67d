"""A classifier with dropout, and images for it."""

import pytest
import torch
from torch import nn


@pytest.fixture
def model():
    layers = nn.Flatten(), nn.Linear(48, 16), nn.BatchNorm1d(16), nn.Dropout()
    return nn.Sequential(*layers, nn.Linear(16, 5)).eval()


@pytest.fixture
def pairs():
    """Ten labeled images, in batches of four."""
    images = torch.randn(10, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    return list(zip(images.split(4), (torch.arange(10) % 5).split(4), strict=True))
