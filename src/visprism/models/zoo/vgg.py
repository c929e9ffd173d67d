"""VGGs (Simonyan and Zisserman 2015), without norms, with them, and in pre-activation order."""

from collections.abc import Sequence
from typing import Literal

from torch import nn

from visprism.models.layers.plain import PlainNet, stage_info
from visprism.models.layers.smoothing import SpatialSmoothing
from visprism.models.zoo_registry import MODELS

_WIDTHS = (64, 128, 256, 512, 512)  # channels, by stage


def vgg(
    depths: Sequence[int],
    norm: Literal["none", "behind", "before"],
    *,
    num_classes: int,
    in_chans: int = 3,
    head: str = "mlp",
    mc_dropout: float = 0.0,
    smoothing: bool = False,
) -> nn.Module:
    """3x3 convolutions in five stages, each followed by a max-pool, and an MLP of three layers.

    The MLP reads a 7x7 map, to which the last map is pooled, or repeated for small images.
    Convolutions next to a BatchNorm have no biases.

    Source: Simonyan and Zisserman (2015), Very deep convolutional networks; Ioffe and Szegedy
    (2015), Batch normalization; He et al. (2016), Identity mappings, for the order.
    """
    layers: list[nn.Module] = []
    channels = in_chans
    for depth, width in zip(depths, _WIDTHS, strict=True):
        for _ in range(depth):
            layers += _convolution(channels, width, norm)
            if mc_dropout:
                layers.append(nn.Dropout(mc_dropout))
            channels = width
        if smoothing:
            layers.append(SpatialSmoothing())
        layers.append(nn.MaxPool2d(2, stride=2))
    model = PlainNet(
        layers,
        head=head,
        grid=7,
        channels=channels,
        num_classes=num_classes,
        least=32,
        feature_info=stage_info(layers, _WIDTHS, (1, 2, 4, 8, 16)),
    )
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Linear) and head == "mlp":
            nn.init.normal_(module.weight, std=0.01)
            nn.init.zeros_(module.bias)
    return model


def _convolution(in_chans: int, out_chans: int, norm: str) -> list[nn.Module]:
    """A convolution and its ReLU; a BatchNorm stands behind or before the convolution."""
    conv = nn.Conv2d(in_chans, out_chans, 3, padding=1, bias=norm == "none")
    relu = nn.ReLU(inplace=True)
    if norm == "before":
        return [nn.BatchNorm2d(in_chans), relu, conv]
    return [conv, nn.BatchNorm2d(out_chans), relu] if norm == "behind" else [conv, relu]


_DEPTHS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
for _name, _title, _norm in (
    ("vgg{}", "VGG-{}", "none"),
    ("vgg{}_bn", "VGG-{} with BatchNorm", "behind"),
    ("preact_vgg{}", "VGG-{}, pre-activation,", "before"),
):
    MODELS.register_family(
        vgg,
        {
            _name.format(number): (_title.format(number), {"depths": depths, "norm": _norm})
            for number, depths in _DEPTHS.items()
        },
    )
