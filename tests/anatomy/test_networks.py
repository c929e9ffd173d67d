"""Laws of dissection on published networks: each comes apart as its paper describes it.

The expectations are written by hand from the papers, never from what the code gives.
"""

from fnmatch import fnmatchcase
from typing import NamedTuple

import pytest


class Row(NamedTuple):
    name: str  # as a file name pattern
    kind: str
    stage: int
    subsampling: bool
    grid: tuple[int, int] | None
    prefix: int | None  # number of tokens before the patches


def network(stem, *stages, prefix=0):
    """The stem, whose grid has sides of `stem`; stages as (side, "name kind", ...); the head.

    Where a stage has another side than the one before, its first block makes it.
    """
    rows = [Row("stem", "stem", 0, subsampling=False, grid=(stem, stem), prefix=prefix)]
    for number, (side, *parts) in enumerate(stages, 1):
        for part in parts:
            shrinks = (side, side) != rows[-1].grid
            rows.append(Row(*part.split(), number, shrinks, (side, side), prefix))
    return [*rows, Row("head", "head", len(stages), subsampling=False, grid=None, prefix=None)]


def convs(names, numbers):
    return [f"{names.format(i)} conv" for i in numbers]


def attentions(names, depth, attn="attn", mlp="mlp"):
    """Attention and mlp, alternating, as in every transformer."""
    kinds = (attn, "attention"), (mlp, "mlp")
    return [f"{names.format(i)}.{part} {kind}" for i in range(depth) for part, kind in kinds]


def vit(side, depth, *, prefix, names="blocks.{}", **parts):
    return network(side, (side, *attentions(names, depth, **parts)), prefix=prefix)


def resnet(names, depths):
    """Images of 64. The first block of a stage is residual too, so it is no downsampling."""
    sides = [16, 8, 4, 2]
    blocks = [convs(names[i], range(n)) for i, n in enumerate(depths)]
    return network(16, *((side, *b) for side, b in zip(sides, blocks, strict=True)))


def swin():
    """Table 7: four stages of 2, 2, 6, 2 blocks with patch merging between."""
    stages = []
    for i, depth in enumerate((2, 2, 6, 2)):
        merging = [f"layers.{i}.downsample downsample"] if i else []
        stages.append((56 >> i, *merging, *attentions(f"layers.{i}.blocks.{{}}", depth)))
    return network(56, *stages)


def maxvit_stage(number):
    block = f"stages.{number}.blocks.0"
    parts = [f"{block}.attn_{part}" for part in ("block", "grid")]
    return f"{block}.conv conv", *(row for part in parts for row in attentions(part, 1))


EXPECTED = {
    # Dosovitskiy et al. (2021); Touvron et al. (2021), table 1: 12 blocks, a class token.
    "vit_tiny": vit(6, 12, prefix=1),
    "torchvision_vit": vit(
        4, 3, prefix=1, names="encoder.layers.encoder_layer_{}", attn="self_attention"
    ),
    # `intermediate` was the mlp's name before transformers 5.
    "hugging_face_vit": vit(
        4, 3, prefix=1, names="vit.*.{}", attn="attention", mlp="[mi][ln]*"
    ),
    # Darcet et al. (2024): four registers behind the class token.
    "vit_reg4": vit(5, 3, prefix=5),
    # Dehghani et al. (2023), ViT-22B, eq. 1: attention and mlp read the same tokens.
    "parallel_vit": network(4, (4, *(f"blocks.{i} attention+mlp" for i in range(3))), prefix=1),
    # Liu et al. (2021), Swin.
    "swin_tiny": swin(),
    # Graham et al. (2021), LeViT, table 2: the attention between two stages has no skip; 14 is
    # halved to 7 and that to 4.
    "levit_128s": network(
        14,
        (14, *attentions("stages.0.blocks.{}", 2)),
        (
            7,
            "stages.1.downsample.attn_downsample attention",
            "stages.1.downsample.mlp mlp",
            *attentions("stages.1.blocks.{}", 3),
        ),
        (
            4,
            "stages.2.downsample.attn_downsample attention",
            "stages.2.downsample.mlp mlp",
            *attentions("stages.2.blocks.{}", 4),
        ),
    ),
    # Ryali et al. (2023), Hiera, table 1: 1, 2, 7, 2 blocks; the queries are pooled in the
    # first attention of a stage, beside a pooled skip.
    "hiera_tiny": network(
        56,
        (56, "blocks.0.attn attention", "blocks.0.mlp mlp"),
        (28, *attentions("blocks.{}", 3)[2:]),
        (14, *attentions("blocks.{}", 10)[6:]),
        (7, *attentions("blocks.{}", 12)[20:]),
    ),
    # He et al. (2016), table 1; with pre-activation, He et al. (2016b).
    "resnet18": resnet([f"layer{s}.{{}}" for s in (1, 2, 3, 4)], (2, 2, 2, 2)),
    "resnetv2_50": resnet([f"stages.{s}.blocks.{{}}" for s in (0, 1, 2, 3)], (3, 4, 6, 3)),
    # Huang et al. (2017), table 1.
    # A dense block has no sum to cut at: everything in it is read until its end.
    "densenet121": network(
        16,
        (16, "features.denseblock1 conv"),
        (8, "features.transition1 downsample", "features.denseblock2 conv"),
        (4, "features.transition2 downsample", "features.denseblock3 conv"),
        (2, "features.transition3 downsample", "features.denseblock4 conv"),
    ),
    # Liu et al. (2022), ConvNeXt-T: 3, 3, 9, 3 blocks, a 2x2 convolution between stages.
    "convnext_tiny": network(
        16,
        (16, *convs("stages.0.blocks.{}", range(3))),
        (8, "stages.1.downsample downsample", *convs("stages.1.blocks.{}", range(3))),
        (4, "stages.2.downsample downsample", *convs("stages.2.blocks.{}", range(9))),
        (2, "stages.3.downsample downsample", *convs("stages.3.blocks.{}", range(3))),
    ),
    # Tan & Le (2019), table 1.
    "efficientnet_b0": network(
        32,
        (32, "blocks.0.0 conv"),
        (16, *convs("blocks.1.{}", range(2))),
        (8, *convs("blocks.2.{}", range(2))),
        (4, *convs("blocks.3.{}", range(3)), *convs("blocks.4.{}", range(3))),
        (2, *convs("blocks.5.{}", range(4)), "blocks.6.0 conv"),
    ),
    # Dai et al. (2021), CoAtNet, fig. 4: two stages of convolutions, then two of attention.
    "coatnet": network(
        32,
        (16, "stages.0.blocks.0 conv"),
        (8, *convs("stages.1.blocks.{}", range(2))),
        (4, *attentions("stages.2.blocks.{}", 2)),
        (2, *attentions("stages.3.blocks.{}", 1)),
    ),
    # Mehta & Rastegari (2022), table 4; images of 128. A MobileViT block is one block: its
    # input is read again at its very end.
    "mobilevit_xxs": network(
        64,
        (64, "stages.0.0 conv"),
        (32, *convs("stages.1.{}", range(3))),
        (16, "stages.2.0 conv", "stages.2.1 attention"),
        (8, "stages.3.0 conv", "stages.3.1 attention"),
        (4, "stages.4.0 conv", "stages.4.1 attention"),
    ),
    # Tu et al. (2022), MaxViT, fig. 2: a convolution, block attention, grid attention.
    "maxvit": network(64, *((64 >> s, *maxvit_stage(s - 1)) for s in (1, 2, 3, 4))),
}
EXPECTED["parallel_vit_fused"] = EXPECTED["parallel_vit"]


def found(block):
    layout = block.layout
    grid, prefix = (layout.grid, layout.num_prefix_tokens) if layout else (None, None)
    return Row(block.name, block.kind, block.stage, block.subsampling, grid, prefix)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_network_comes_apart_as_its_paper_describes_it(dissected, name):
    anatomy = dissected(name)
    rows = [found(block) for block in anatomy]
    assert [row[1:] for row in rows] == [row[1:] for row in EXPECTED[name]]
    misnamed = [
        (row.name, wanted.name)
        for row, wanted in zip(rows, EXPECTED[name], strict=True)
        if not fnmatchcase(row.name, wanted.name)
    ]
    assert not misnamed
    assert anatomy.notes == ()  # there is nothing to warn of


@pytest.mark.parametrize("name", EXPECTED)
def test_every_trainable_parameter_belongs_to_a_block(dissected, name):
    anatomy = dissected(name)
    used = {name for block in anatomy for name in block.parameters}
    trainable = {n for n, p in anatomy.model.named_parameters() if p.requires_grad}
    assert trainable == used
