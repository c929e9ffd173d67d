"""Feature maps that need no model."""

import pytest
import torch

from visprism import Block, Layout


@pytest.fixture(scope="session")
def measure():
    """`measure(probe, x, y)`: what the probe finds in feature maps of successive blocks."""

    def measure(probe, *maps):
        batch = {}
        for i, x in enumerate(maps):
            layout = Layout("b c h w", tuple(x.shape[2:]))
            depth = i / max(1, len(maps) - 1)
            block = Block(
                name=f"block{i}",
                kind="conv",
                stage=0,
                depth=depth,
                subsampling=False,
                shape=tuple(x.shape[1:]),
                layout=layout,
            )
            batch[block] = probe.extract(x)
        probe.update(batch)
        return probe.result()

    return measure


@pytest.fixture
def noise():
    """`noise(2, 3, 8, 8)`: white noise in float64, the same in every run."""
    generator = torch.Generator().manual_seed(0)
    return lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64)
