"""Small CNNs of several libraries, and images for them."""

import pytest
import torch

from visprism.core.run import stream


@pytest.fixture
def images():
    return torch.randn(2, 3, 32, 32, generator=stream(0, "images"))
