"""MobileNetV2 (Sandler et al. 2018), torchvision's class."""

from torch import nn
from torchvision.models import MobileNetV2
from torchvision.ops import Conv2dNormActivation

from visprism.models.zoo import MODELS

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
_ENDS = (1, 3, 6, 13, 17)  # the last block of each grid


def mobilenetv2(
    img_size: int, *, num_classes: int, in_chans: int = 3, drop_rate: float = 0.2
) -> nn.Module:
    """Inverted residual blocks: narrow shortcuts, and depthwise convolutions on wide branches.

    For small images the stem and the second stage have no stride.

    Args:
        img_size: of the images that it is made for.
        num_classes: logits; 0 for a network that gives features.
        in_chans: channels of an image.
        drop_rate: of dropout before the classifier.

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
    if not num_classes:
        model.set_submodule("classifier", nn.Identity())
    reductions = (1, 1, 2, 4, 8) if small else (2, 4, 8, 16, 32)
    widths = (16, 24, 32, 96, 320)
    info = [
        {"num_chs": width, "reduction": reduction, "module": f"features.{end}"}
        for width, reduction, end in zip(widths, reductions, _ENDS, strict=True)
    ]
    setattr(model, "feature_info", info)  # noqa: B010 (timm's name; torchvision has none)
    return model


MODELS.register_family(mobilenetv2, {"mobilenetv2": ("MobileNetV2", {})})
