"""Pre-activation ResNets (He et al. 2016)."""

from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from visprism.core.errors import InputError
from visprism.models.layers.residual_blocks import (
    MakeBlock,
    PreActBasic,
    PreActBottleneck,
    StagedNet,
)
from visprism.models.zoo_registry import MODELS, extends

_WIDTHS = (64, 128, 256, 512)  # of the 3x3 convolutions, by stage
_STEM = 64


class PreActResNet(StagedNet):
    """A stem, stages of blocks that `make_block` makes, norm, ReLU and a head."""

    def __init__(
        self,
        make_block: MakeBlock,
        expansion: int,
        img_size: int,
        *,
        depths: tuple[int, ...],
        num_classes: int,
        in_chans: int = 3,
        smoothing: bool = False,
        drop_path_rate: float = 0.0,
    ) -> None:
        super().__init__()
        if not 1 <= len(depths) <= len(_WIDTHS):
            raise InputError(f"depths must have 1 to {len(_WIDTHS)} stages, got {len(depths)}")
        small = img_size < 64
        self.conv1 = nn.Conv2d(in_chans, _STEM, 3, padding=1, bias=False)
        self.maxpool = nn.Identity()
        if not small:
            self.conv1 = nn.Conv2d(in_chans, _STEM, 7, stride=2, padding=3, bias=False)
            self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        widths = [width * expansion for width in _WIDTHS[: len(depths)]]
        channels = self.make_stages(
            *(depths, widths, make_block),
            channels=_STEM,
            drop_path_rate=drop_path_rate,
            smoothed=len(depths) - 1 if smoothing else 0,
        )
        self.norm, self.act = nn.BatchNorm2d(channels), nn.ReLU()
        self.make_head(channels, num_classes)

    def forward_features(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d i j"]:
        """The last map, after norm and activation."""
        return self.act(self.norm(self.forward_stages(self.maxpool(self.conv1(x)))))


@extends(PreActResNet)
def preact_resnet(
    block: type[PreActBasic] | type[PreActBottleneck],
    img_size: int,
    make_block: MakeBlock | None = None,
    *,
    mc_dropout: float = 0.0,
    **options: Any,
) -> nn.Module:
    """Norm and activation precede each convolution; shortcuts are identities.

    The stem is a 3x3 convolution for small images, and 7x7 with a max-pool for large ones.

    Source: He et al. (2016), Identity mappings in deep residual networks.
    """

    def make(_s: int, _b: int, ins: int, outs: int, stride: int, drop: float) -> nn.Module:
        return block(ins, outs, stride, drop_path=drop, mc_dropout=mc_dropout)

    return PreActResNet(make_block or make, block.expansion, img_size, **options)


_DEPTHS = {
    18: ((2, 2, 2, 2), PreActBasic),
    34: ((3, 4, 6, 3), PreActBasic),
    50: ((3, 4, 6, 3), PreActBottleneck),
    101: ((3, 4, 23, 3), PreActBottleneck),
    152: ((3, 8, 36, 3), PreActBottleneck),
}
MODELS.register_family(
    preact_resnet,
    {
        f"preact_resnet{number}": (
            f"Pre-activation ResNet-{number}",
            {"depths": depths, "block": block},
        )
        for number, (depths, block) in _DEPTHS.items()
    },
)
