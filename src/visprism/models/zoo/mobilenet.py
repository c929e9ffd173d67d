"""MobileNetV2 (Sandler et al. 2018), torchvision's class with the zoo's options."""

import torchvision.models
from jaxtyping import Float
from timm.layers import DropPath
from torch import Tensor, nn
from torchvision.models.mobilenetv2 import InvertedResidual
from torchvision.ops import Conv2dNormActivation

from visprism.models.layers.heads import Head, PooledNet, classifier_of, pool_of
from visprism.models.layers.residual_blocks import SpatialSmoothing
from visprism.models.zoo_registry import MODELS

# Expansion, channels, blocks, stride: Sandler et al., table 2.
_LARGE = [
    [1, 16, 1, 1],
    [6, 24, 2, 2],
    [6, 32, 3, 2],
    [6, 64, 4, 2],
    [6, 96, 3, 1],
    [6, 160, 3, 2],
    [6, 320, 1, 1],
]
_SMALL = [_LARGE[0], [6, 24, 2, 1], *_LARGE[2:]]


class MobileNetV2(PooledNet, torchvision.models.MobileNetV2):
    """torchvision's MobileNetV2, with a choice of heads."""

    classifier_at = "classifier"
    global_pool: nn.Module

    def forward_features(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d i j"]:
        """The last map."""
        return self.features(x)


def mobilenetv2(
    img_size: int,
    *,
    num_classes: int,
    in_chans: int = 3,
    head: Head = "gap",
    drop_rate: float = 0.2,
    mc_dropout: float = 0.0,
    smoothing: bool = False,
    drop_path_rate: float = 0.0,
) -> MobileNetV2:
    """Inverted residual blocks: narrow shortcuts, and depthwise convolutions in wide branches.

    For small images the stem and the second stage have no stride. Smoothing is of the wide and
    rectified map before a depthwise convolution with a stride, since a narrow map would lose
    what is below zero. Blocks without a shortcut have no stochastic depth.

    Source: Sandler et al. (2018), MobileNetV2: inverted residuals and linear bottlenecks.
    """
    small = img_size < 64
    setting = _SMALL if small else _LARGE
    model = MobileNetV2(num_classes or 1, inverted_residual_setting=setting, dropout=drop_rate)
    if small or in_chans != 3:
        stem = Conv2dNormActivation(
            in_chans, 32, stride=1 if small else 2, activation_layer=nn.ReLU6
        )
        nn.init.kaiming_normal_(stem.get_parameter("0.weight"), mode="fan_out")
        model.set_submodule("features.0", stem)
    channels = model.last_channel
    model.global_pool = pool_of(head, channels)
    if head != "gap" or not num_classes:
        model.set_submodule("classifier.1", classifier_of(head, channels, num_classes))
    model.num_classes = num_classes
    blocks = [block for block in model.features if isinstance(block, InvertedResidual)]
    for place, block in enumerate(blocks):
        *expansion, depthwise = (m for m in block.conv if isinstance(m, Conv2dNormActivation))
        if smoothing and block.stride == 2:
            expansion[0].append(SpatialSmoothing())
        if mc_dropout:
            depthwise.append(nn.Dropout(mc_dropout))
        rate = drop_path_rate * place / (len(blocks) - 1)
        if rate and block.use_res_connect:
            block.conv.append(DropPath(rate))
    return model


MODELS.register_family(mobilenetv2, {"mobilenetv2": ("MobileNetV2", {})})
