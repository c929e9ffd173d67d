"""ResNets and their relatives: ResNeXt, wide, squeeze-and-excitation, CBAM; timm's class."""

from collections.abc import Callable, Sequence
from functools import partial

from timm.layers import SEModule
from timm.layers.cbam import CbamModule
from timm.models.resnet import BasicBlock, Bottleneck, ResNet
from torch import nn

from visprism.models.layers.residual_blocks import SpatialSmoothing
from visprism.models.zoo_registry import MODELS


def resnet(
    depths: Sequence[int],
    block: type[BasicBlock] | type[Bottleneck],
    img_size: int,
    cardinality: int = 1,
    base_width: int = 64,
    attn_layer: Callable[..., nn.Module] | None = None,
    *,
    num_classes: int,
    in_chans: int = 3,
    mc_dropout: float = 0.0,
    smoothing: bool = False,
    drop_path_rate: float = 0.0,
) -> ResNet:
    """Residual blocks in four stages; all but the first halve the grid.

    The stem is a 3x3 convolution for small images, and 7x7 with a max-pool for large ones. The
    stride of a block is its 3x3 convolution's, as in torchvision.

    Source: He et al. (2016), Deep residual learning for image recognition; Xie et al. (2017),
    Aggregated residual transformations; Zagoruyko and Komodakis (2016), Wide residual networks;
    Hu et al. (2018), Squeeze-and-excitation networks; Woo et al. (2018), CBAM.
    """
    model = ResNet(
        block,  # pyrefly: ignore (timm declares a block where it takes a class)
        tuple(depths),
        num_classes=num_classes,
        in_chans=in_chans,
        cardinality=cardinality,
        base_width=base_width,
        drop_path_rate=drop_path_rate,
        zero_init_last=False,
        block_args={"attn_layer": attn_layer},
    )
    if img_size < 64:
        _made_small(model, in_chans)
    for number in range(1, len(depths) + 1):
        stage = model.get_submodule(f"layer{number}")
        assert isinstance(stage, nn.Sequential)
        for module in stage if mc_dropout else ():
            module.drop_block = nn.Dropout(mc_dropout)  # the ReLU after it keeps zeros
        if smoothing:
            stage.append(SpatialSmoothing())
    return model


def _made_small(model: ResNet, in_chans: int) -> None:
    """Give a ResNet the stem for small images, which keeps their grid."""
    model.conv1 = nn.Conv2d(in_chans, 64, 3, padding=1, bias=False)
    nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
    model.set_submodule("maxpool", nn.Identity())


_50 = {"depths": (3, 4, 6, 3), "block": Bottleneck}
_101 = {"depths": (3, 4, 23, 3), "block": Bottleneck}
# Without constants, as the gate's equations have it (Hu et al., eq. 3); timm's has them.
_SE = partial(SEModule, rd_ratio=1 / 16, rd_divisor=1, bias=False)

MODELS.register_family(
    resnet,
    {
        "resnet18": ("ResNet-18", {"depths": (2, 2, 2, 2), "block": BasicBlock}),
        "resnet34": ("ResNet-34", {"depths": (3, 4, 6, 3), "block": BasicBlock}),
        "resnet50": ("ResNet-50", _50),
        "resnet101": ("ResNet-101", _101),
        "resnet152": ("ResNet-152", {"depths": (3, 8, 36, 3), "block": Bottleneck}),
        "resnext50_32x4d": ("ResNeXt-50 (32x4d)", _50 | {"cardinality": 32, "base_width": 4}),
        "resnext101_32x8d": (
            "ResNeXt-101 (32x8d)",
            _101 | {"cardinality": 32, "base_width": 8},
        ),
        "wide_resnet50_2": ("Wide ResNet-50-2", _50 | {"base_width": 128}),
        "wide_resnet101_2": ("Wide ResNet-101-2", _101 | {"base_width": 128}),
        "se_resnet50": ("SE-ResNet-50", _50 | {"attn_layer": _SE}),
        "cbam_resnet50": ("CBAM-ResNet-50", _50 | {"attn_layer": CbamModule}),
    },
)
