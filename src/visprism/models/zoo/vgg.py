"""VGGs (Simonyan and Zisserman 2015), without norms, with them, and in pre-activation order."""

from collections.abc import Sequence
from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from visprism.models.layers.residual_blocks import MeanPool, SpatialSmoothing, linear
from visprism.models.zoo_registry import MODELS

Head = Literal["mlp", "gap"]
_HIDDEN = 4096  # channels of the two hidden layers of the MLP


class PlainNet(nn.Module):
    """Features, pooling and a classifier, under torchvision's names for them.

    The head "mlp" is an MLP of the last map, pooled to `grid` x `grid` positions; "gap" is a
    linear classifier of its mean.
    """

    def __init__(
        self,
        features: Sequence[nn.Module],
        *,
        head: str,
        grid: int,
        channels: int,
        num_classes: int,
        dropout_first: bool = False,
    ) -> None:
        super().__init__()
        self.features = nn.Sequential(*features)
        self.num_classes = num_classes
        if head == "gap":
            self.avgpool: nn.Module = MeanPool()
            self.classifier: nn.Module = linear(channels, num_classes)
            return
        layers = mlp(channels * grid**2, num_classes or 1, dropout_first=dropout_first)
        if not num_classes:
            layers[-1] = nn.Identity()
        self.avgpool, self.classifier = _Grid(grid), layers

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b ..."]:
        """Logits, or features without classes."""
        return self.classifier(self.avgpool(self.features(x)))


def mlp(channels: int, num_classes: int, *, dropout_first: bool) -> nn.Sequential:
    """Three linear layers with dropout in training (AlexNet's comes first)."""
    layers: list[nn.Module] = []
    for width in (channels, _HIDDEN):
        hidden: list[nn.Module] = [nn.Linear(width, _HIDDEN), nn.ReLU(inplace=True)]
        layers += [nn.Dropout(), *hidden] if dropout_first else [*hidden, nn.Dropout()]
    return nn.Sequential(*layers, nn.Linear(_HIDDEN, num_classes))


class _Grid(nn.AdaptiveAvgPool2d):
    """A map pooled to a grid, as one vector."""

    def forward(self, input: Float[Tensor, "b c h w"]) -> Float[Tensor, "b n"]:
        return super().forward(input).flatten(1)


_WIDTHS = (64, 128, 256, 512, 512)  # channels, by stage


def vgg(
    depths: Sequence[int],
    norm: Literal["none", "behind", "before"],
    *,
    num_classes: int,
    in_chans: int = 3,
    head: Head = "mlp",
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
    model = PlainNet(layers, head=head, grid=7, channels=channels, num_classes=num_classes)
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


# AlexNet (Krizhevsky 2014).

_WIDTHS_OF_ALEXNET = (64, 192, 384, 256, 256)  # channels of the five convolutions


def alexnet(
    img_size: int,
    *,
    num_classes: int,
    in_chans: int = 3,
    conv_bias: bool = True,
    head: Head = "mlp",
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
    for place, (width, sizes) in enumerate(zip(_WIDTHS_OF_ALEXNET, kernels, strict=True)):
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
        dropout_first=True,
    )


MODELS.register_family(alexnet, {"alexnet": ("AlexNet", {})})
