"""Alter-ResNets (Park and Kim 2022): a CNN whose stages end in multi-head self-attention."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from visprism.core.errors import InputError
from visprism.models.layers.residual_blocks import MSABlock, PreActBasic, PreActBottleneck
from visprism.models.zoo.preact_resnet import preact_resnet
from visprism.models.zoo_registry import MODELS, check_per_stage, extends


def attention_places(depths: Sequence[int], msas: Sequence[int]) -> list[set[int]]:
    """Which blocks of each stage are MSAs: its last one and every second one before that.

    Example:
        >>> attention_places((3, 4, 6, 4), (0, 1, 3, 2))
        [set(), {3}, {1, 3, 5}, {1, 3}]

    Source: Park and Kim (2022), How do vision transformers work?, sec. 4.1.
    """
    check_per_stage("msas", msas, depths)
    for stage, (depth, number) in enumerate(zip(depths, msas, strict=True), 1):
        if not 0 <= number <= (depth + 1) // 2:
            raise InputError(
                f"msas must be 0 to {(depth + 1) // 2} in stage {stage}, which "
                f"has {depth} blocks, got {number}"
            )
    pairs = zip(depths, msas, strict=True)
    return [set(range(depth - 1, depth - 1 - 2 * number, -2)) for depth, number in pairs]


@extends(preact_resnet)
def alter_resnet(
    block: type[PreActBasic] | type[PreActBottleneck],
    img_size: int,
    *,
    depths: tuple[int, ...] = (3, 4, 6, 4),
    msas: tuple[int, ...] = (0, 1, 3, 2),
    num_heads: tuple[int, ...] = (3, 6, 12, 24),
    head_dim: int = 64,
    window: int = 7,
    shared_bias: bool = False,
    mc_dropout: float = 0.0,
    **options: Any,
) -> nn.Module:
    """A pre-activation ResNet in which MSA blocks alternate with convolutions at stages' ends.

    Each MSA block attends inside windows, with a bias for each relative position and head. The
    paper's code has one for all heads (`shared_bias=True`), and three and two MSAs in the last
    stages; the paper's figure for CIFAR-100 has `msas=(0, 1, 1, 2)`.

    Source: Park and Kim (2022), How do vision transformers work?, sec. 4.
    """
    places = attention_places(depths, msas)
    check_per_stage("num_heads", num_heads, depths)

    def make(
        stage: int, place: int, in_chans: int, out_chans: int, stride: int, drop: float
    ) -> nn.Module:
        if place not in places[stage]:
            return block(in_chans, out_chans, stride, drop_path=drop, mc_dropout=mc_dropout)
        return MSABlock(
            in_chans,
            out_chans,
            stride,
            num_heads=num_heads[stage],
            head_dim=head_dim,
            window=window,
            width=out_chans // block.expansion,
            shared_bias=shared_bias,
            drop_path=drop,
            mc_dropout=mc_dropout,
        )

    return preact_resnet(block, img_size, make, depths=depths, mc_dropout=mc_dropout, **options)


_VARIANTS = {
    18: {"block": PreActBasic, "depths": (2, 2, 2, 2), "msas": (0, 1, 1, 1)},
    34: {"block": PreActBasic},
    50: {"block": PreActBottleneck},
    101: {"block": PreActBottleneck, "depths": (3, 4, 23, 4)},
    152: {"block": PreActBottleneck, "depths": (3, 8, 36, 4)},
}
for _side, _window in ((32, 4), (224, 7)):
    MODELS.register_family(
        alter_resnet,
        {
            f"alter_resnet{number}": (f"Alter-ResNet-{number}", {"window": _window, **shape})
            for number, shape in _VARIANTS.items()
        },
        (_side,),
    )
