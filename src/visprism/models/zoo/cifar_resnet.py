"""ResNets for CIFAR (He et al. 2016): three stages of 16, 32 and 64 channels.

Every shortcut that changes the shape is a 1x1 convolution (the paper's option B), as in timm
and torchvision; the paper's own CIFAR networks pad with zeros instead (option A). Modules are
named in timm's vocabulary.
"""

from functools import partial
from typing import Any

from jaxtyping import Float
from timm.layers import DropPath
from timm.models.resnet import BasicBlock
from torch import Tensor, nn

from visprism.models.layers.residual_blocks import (
    PostActMSABlock,
    StagedNet,
    optional,
    projection,
)
from visprism.models.zoo.alter_resnet import attention_places
from visprism.models.zoo_registry import MODELS, check_per_stage, extends

_DEPTHS = (3, 3, 3)
_CHANNELS = (16, 32, 64)


class ResNet(StagedNet):
    """A 3x3 stem and three stages of three basic blocks: 0.27 million parameters.

    Source: He et al. (2016), Deep residual learning for image recognition, sec. 4.2.
    """

    def __init__(
        self,
        *,
        num_classes: int,
        in_chans: int = 3,
        mc_dropout: float = 0.0,
        smoothing: bool = False,
        drop_path_rate: float = 0.0,
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_chans, _CHANNELS[0], 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(_CHANNELS[0])
        self.act1 = nn.ReLU(inplace=True)

        def make(_s: int, _b: int, ins: int, outs: int, stride: int, drop: float) -> nn.Module:
            shortcut = projection(ins, outs, stride)
            return BasicBlock(
                ins,
                outs,
                stride,
                None if isinstance(shortcut, nn.Identity) else shortcut,
                drop_block=partial(optional, nn.Dropout, mc_dropout),  # pyrefly: ignore
                drop_path=optional(DropPath, drop),
            )

        channels = self.make_stages(
            *(_DEPTHS, _CHANNELS, make),
            channels=_CHANNELS[0],
            drop_path_rate=drop_path_rate,
            smoothed=len(_DEPTHS) if smoothing else 0,
        )
        self.make_head(channels, num_classes)

    def forward_features(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d i j"]:
        """The last map."""
        return self.forward_stages(self.act1(self.bn1(self.conv1(x))))


@extends(ResNet)
def alter_resnet20(
    *,
    msas: tuple[int, ...] = (0, 1, 1),
    num_heads: tuple[int, ...] = (1, 2, 3),
    head_dim: int = 64,
    window: int = 8,
    shared_bias: bool = False,
    mc_dropout: float = 0.0,
    drop_path_rate: float = 0.0,
    **options: Any,
) -> ResNet:
    """ResNet-20 in which MSA blocks alternate with convolutions at the ends of the late stages.

    It has 0.25 million parameters. Norm and activation follow each convolution.

    Source: Park and Kim (2022), How do vision transformers work?, sec. 4, for He et al. (2016),
    Deep residual learning for image recognition, sec. 4.2.
    """
    places = attention_places(_DEPTHS, msas)
    check_per_stage("num_heads", num_heads, _DEPTHS)
    model = ResNet(mc_dropout=mc_dropout, drop_path_rate=drop_path_rate, **options)
    for stage, (depth, out_chans) in enumerate(zip(_DEPTHS, _CHANNELS, strict=True)):
        for place in sorted(places[stage]):
            first_of_later_stage = stage > 0 and place == 0
            block = PostActMSABlock(
                _CHANNELS[stage - 1] if first_of_later_stage else out_chans,
                out_chans,
                2 if first_of_later_stage else 1,
                width=out_chans,
                num_heads=num_heads[stage],
                head_dim=head_dim,
                window=window,
                shared_bias=shared_bias,
                drop_path=drop_path_rate * (stage * depth + place) / (sum(_DEPTHS) - 1),
                mc_dropout=mc_dropout,
            )
            model.set_submodule(f"layer{stage + 1}.{place}", block)
    return model


MODELS.register_family(ResNet, {"resnet20": ("ResNet-20", {})}, ())
MODELS.register_family(alter_resnet20, {"alter_resnet20": ("Alter-ResNet-20", {})}, ())
