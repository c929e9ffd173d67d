"""AlexNet (Krizhevsky 2014)."""

from torch import nn

from visprism.models.layers.plain import PlainNet, stage_info
from visprism.models.layers.smoothing import SpatialSmoothing
from visprism.models.zoo_registry import MODELS

_WIDTHS = (64, 192, 384, 256, 256)  # channels of the five convolutions


def alexnet(
    img_size: int,
    *,
    num_classes: int,
    in_chans: int = 3,
    conv_bias: bool = True,
    head: str = "mlp",
    mc_dropout: float = 0.0,
    smoothing: bool = False,
) -> nn.Module:
    """Five convolutions with three max-pools, and an MLP of three layers.

    For small images the first convolution is 3x3 with stride 2 instead of 11x11 with stride 4,
    max-pools are over 2x2 pixels instead of 3x3, and the MLP reads a map of 2x2 instead of 6x6.
    The code of Park and Kim (2022) has `conv_bias=False`.

    Source: Krizhevsky (2014), One weird trick for parallelizing convolutional neural networks.
    """
    small = img_size < 64
    kernels = [(3, 2, 1) if small else (11, 4, 2), (5, 1, 2), *[(3, 1, 1)] * 3]
    layers: list[nn.Module] = []
    channels = in_chans
    for place, (width, sizes) in enumerate(zip(_WIDTHS, kernels, strict=True)):
        layers += [nn.Conv2d(channels, width, *sizes, bias=conv_bias), nn.ReLU(inplace=True)]
        if mc_dropout:
            layers.append(nn.Dropout(mc_dropout))
        channels = width
        if place in (0, 1, 4):
            if smoothing:
                layers.append(SpatialSmoothing())
            layers.append(nn.MaxPool2d(2 if small else 3, stride=2))
    return PlainNet(
        layers,
        head=head,
        grid=2 if small else 6,
        channels=channels,
        num_classes=num_classes,
        least=15 if small else 63,
        feature_info=stage_info(layers, (64, 192, 256), (2, 4, 8) if small else (4, 8, 16)),
        dropout_first=True,
    )


MODELS.register_family(alexnet, {"alexnet": ("AlexNet", {})})
