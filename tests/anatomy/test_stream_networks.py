"""Laws of dissection on published networks with parallel streams, in small configurations.

The streams, their grids and their blocks are written by hand from the papers.
"""

import numpy as np
import pytest
import torch
from small_models import Residual
from timm.models.crossvit import CrossVit
from timm.models.hrnet import hrnet_w18_small
from timm.models.tnt import TNT
from torch import nn

from visprism import Fourier, costs, dissect, observe


def images(side):
    return torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(0))


def crossvit():
    """Chen et al. (2021), fig. 2: patches of 12, and of 16 of the image at 32 pixels."""
    return CrossVit(
        img_size=48,
        img_scale=(1.0, 2 / 3),
        patch_size=(12, 16),
        embed_dim=(16, 32),
        depth=((1, 2, 0), (1, 2, 0)),
        num_heads=(2, 2),
        mlp_ratio=(2.0, 2.0, 1.0),
        num_classes=5,
    )


def tnt():
    """Han et al. (2021), fig. 1: patches of 16, each of 16 pixel tokens."""
    return TNT(
        img_size=64,
        patch_size=16,
        embed_dim=32,
        inner_dim=8,
        depth=3,
        num_heads_inner=2,
        num_heads_outer=2,
        num_classes=5,
    )


def crossvit_stream(stage, number):
    """As many transformer blocks as the stream has in a stage, then what the other adds."""
    blocks = [f"blocks.{stage}.blocks.{number}.{i}" for i in range(number + 1)]
    parts = [f"{block}.{part}" for block in blocks for part in ("attn", "mlp")]
    return [*parts, f"blocks.{stage}.fusion.{number}"]


def hrnet_stream(number, first):
    """Two blocks in a module, then what other streams add; a wider block before the head."""
    parts = f"branches.{number}.0", f"branches.{number}.1", f"fuse_layers.{number}"
    blocks = [f"stage{stage}.0.{part}" for stage in range(first, 5) for part in parts]
    return [*blocks, f"incre_modules.{number}.0"]


# By network: the side of the images, and for each stream its grids and its blocks.
EXPECTED = {
    crossvit: (
        48,
        {
            1: ({4}, ["stem", *crossvit_stream(0, 0), *crossvit_stream(1, 0)]),
            2: ({2}, ["stem#2", *crossvit_stream(0, 1), *crossvit_stream(1, 1)]),
        },
    ),
    hrnet_w18_small: (
        64,
        {
            0: ({16}, ["stem", "layer1.0"]),
            1: ({16, 8, 4, 2}, [
                "transition1.0", *hrnet_stream(0, 2),
                *(f"downsamp_modules.{i}" for i in range(3)),
            ]),
            2: ({8}, ["transition1.1", *hrnet_stream(1, 2)]),
            3: ({4}, ["transition2", *hrnet_stream(2, 3)]),
            4: ({2}, ["transition3", *hrnet_stream(3, 4)]),
        },
    ),
    tnt: (
        64,
        {
            1: ({4}, ["proj", *(
                f"blocks.{i}.{part}" for i in range(2) for part in ("proj", "attn_out", "mlp")
            ), "blocks.2.proj"]),
        },
    ),
}  # fmt: skip


@pytest.fixture(scope="module", params=EXPECTED, ids=lambda build: build.__name__)
def network(request):
    torch.manual_seed(0)
    side, streams = EXPECTED[request.param]
    return dissect(request.param().eval(), images(side)), streams


def test_each_stream_has_its_grids_and_its_blocks(network):
    anatomy, streams = network
    for number, (sides, names) in streams.items():
        blocks = [b for b in anatomy if b.stream == number and b.kind != "head"]
        on_grid = [b for b in blocks if b.layout is not None]
        assert {b.shape[1] for b in on_grid} == sides
        assert [b.name for b in on_grid] == names


def test_every_parameter_and_operation_is_in_one_block(network):
    anatomy, _ = network
    table = costs(anatomy)
    macs = sum(node.macs for node in anatomy.graph.nodes) // 2
    assert table.macs.sum() == pytest.approx(macs, abs=len(anatomy))  # each row is rounded down
    names = {name for block in anatomy for name in block.parameters}
    assert names == {name for name, _ in anatomy.model.named_parameters()}
    off_grid = {b.name.rpartition(".")[2] for b in anatomy[1:-1] if b.layout is None}
    assert off_grid <= {"attn_in", "mlp_in"}  # only pixel tokens have no grid


class Merging(nn.Module):
    """Two streams of residual blocks, which a convolution of their concatenation merges."""

    def __init__(self):
        super().__init__()
        self.fine = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), Residual(), Residual())
        self.coarse = nn.Sequential(nn.Conv2d(3, 8, 5, 4, 2), Residual())
        self.fuse = nn.Conv2d(16, 8, 1)
        self.last = Residual()
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        fine, coarse = self.fine(x), self.coarse(x)
        coarse = nn.functional.interpolate(coarse, size=fine.shape[-2:])
        x = self.last(self.fuse(torch.cat([fine, coarse], 1)))
        return self.head(x.mean((2, 3)))


def test_a_block_that_merges_streams_continues_none_of_them():
    anatomy = dissect(Merging().eval(), images(32))
    assert anatomy["fuse"].previous == ""
    assert anatomy["last"].previous is None  # the block before
    (spectrum,) = observe(anatomy, [images(32)], [Fourier()])
    changes = dict(zip(spectrum.block, spectrum.change, strict=True))
    assert np.isnan(changes["fuse"])
    assert np.isfinite(changes["last"])
