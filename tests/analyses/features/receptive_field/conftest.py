"""Small networks whose receptive fields are known."""

import pytest
import torch
from maps import classifier

from visprism import dissect, receptive_field


@pytest.fixture
def network():
    """`network(*layers)`: the layers and a head in float64, the same weights every time."""

    def network(*layers, channels=1):
        model = classifier(*layers, channels=channels).double()
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(torch.randn(p.shape, generator=generator, dtype=p.dtype))
        return model

    return network


@pytest.fixture
def fields():
    """`fields(model, images)`: sizes, and the map of each block as an array, by its name."""

    def fields(model, images, **options):
        anatomy = dissect(model, images[:2])
        sizes, maps = receptive_field(anatomy, [images], num_blocks=99, **options)
        arrays = {}
        for name in dict.fromkeys(maps.block.tolist()):
            rows = maps.select(maps.block == name)
            shape = rows.row.max() + 1, rows.column.max() + 1
            arrays[name] = rows.share.reshape(shape)
        return sizes, arrays

    return fields
