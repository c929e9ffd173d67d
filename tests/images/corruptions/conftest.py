"""Images to corrupt."""

import pytest
import torch

from visprism import Preprocessing, in_memory, load_data


@pytest.fixture(scope="session")
def images():
    """`images(3, 64)`: drawn shapes with textures, eight-bit RGB."""

    def make(number, side):
        pixels, _ = in_memory(
            load_data(f"shapes?size={side}", limit=number), Preprocessing((side, side))
        )
        return pixels

    return make


@pytest.fixture
def noise():
    """`noise(2, 3, 64, 48)`: random eight-bit images."""
    generator = torch.Generator().manual_seed(0)
    return lambda *shape: torch.randint(256, shape, generator=generator, dtype=torch.uint8)
