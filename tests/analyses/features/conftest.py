"""Feature maps that need no model."""

import maps
import pytest
import torch


@pytest.fixture(scope="session")
def measure():
    """`measure(analysis, x, y)`: the main result of feature maps of successive blocks."""
    return lambda *args, **options: maps.results_of(*args, **options)[0]


@pytest.fixture
def noise():
    """`noise(2, 3, 8, 8)`: white noise in float64, the same in every run."""
    generator = torch.Generator().manual_seed(0)
    return lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64)
