"""Stand-alone self-attention ResNets (Ramachandran et al. 2019)."""

from collections.abc import Sequence

from timm.models.resnet import Bottleneck
from torch import nn

from visprism.models.layers.neighborhood_attention import NeighborhoodAttention
from visprism.models.zoo.resnet import resnet
from visprism.models.zoo_registry import MODELS


def sasa_resnet(
    depths: Sequence[int],
    img_size: int,
    *,
    num_classes: int,
    in_chans: int = 3,
    kernel: int = 7,
    num_heads: int = 8,
    head: str = "gap",
    mc_dropout: float = 0.0,
    smoothing: bool = False,
    drop_path_rate: float = 0.0,
) -> nn.Module:
    """A ResNet with local self-attention instead of every 3x3 convolution of its blocks.

    The stem is that of a ResNet (the paper's "conv stem").

    Source: Ramachandran et al. (2019), Stand-alone self-attention in vision models.
    """
    model = resnet(
        depths,
        Bottleneck,
        img_size,
        num_classes=num_classes,
        in_chans=in_chans,
        head=head,
        mc_dropout=mc_dropout,
        smoothing=smoothing,
        drop_path_rate=drop_path_rate,
    )
    for block in [m for m in model.modules() if isinstance(m, Bottleneck)]:
        conv = block.conv2
        attention = NeighborhoodAttention(
            conv.in_channels,
            conv.out_channels,
            conv.stride[0],
            kernel=kernel,
            num_heads=num_heads,
        )
        block.set_submodule("conv2", attention)
    return model


_DEPTHS = {26: (1, 2, 4, 1), 38: (2, 3, 5, 2), 50: (3, 4, 6, 3)}
MODELS.register_family(
    sasa_resnet,
    {
        f"sasa_resnet{number}": (f"Stand-alone self-attention ResNet-{number}", {"depths": d})
        for number, d in _DEPTHS.items()
    },
)
