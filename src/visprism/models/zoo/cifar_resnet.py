"""ResNets for CIFAR (He et al. 2016): three stages of 16, 32 and 64 channels.

Every shortcut that changes the shape is a 1x1 convolution (the paper's option B), as in timm
and torchvision; the paper's own CIFAR networks pad with zeros instead (option A). Modules are
named in timm's vocabulary.
"""

from collections.abc import Sequence

from jaxtyping import Float
from timm.layers import DropPath
from torch import Tensor, nn

from visprism.models.layers.classifier import PooledNet
from visprism.models.layers.heads import classifier_of, pool_of
from visprism.models.layers.smoothing import SpatialSmoothing
from visprism.models.options import checked
from visprism.models.zoo_registry import MODELS


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut."""

    def __init__(
        self,
        in_chans: int,
        out_chans: int,
        stride: int,
        *,
        mc_dropout: float = 0.0,
        drop_path: float = 0.0,
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_chans, out_chans, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out_chans)
        self.act1 = nn.ReLU(inplace=True)
        self.dropout = nn.Dropout(mc_dropout) if mc_dropout else nn.Identity()
        self.conv2 = nn.Conv2d(out_chans, out_chans, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_chans)
        self.downsample = nn.Identity()
        if stride != 1 or in_chans != out_chans:
            self.downsample = nn.Sequential(
                nn.Conv2d(in_chans, out_chans, 1, stride, bias=False), nn.BatchNorm2d(out_chans)
            )
        self.drop_path = DropPath(drop_path) if drop_path else nn.Identity()
        self.act2 = nn.ReLU(inplace=True)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d i j"]:
        """ReLU of the shortcut plus the branch."""
        branch = self.dropout(self.act1(self.bn1(self.conv1(x))))
        branch = self.bn2(self.conv2(branch))
        return self.act2(self.downsample(x) + self.drop_path(branch))


class ResNet(PooledNet):
    """A 3x3 stem, stages of blocks (all but the first halve the grid), pooling and a head."""

    def __init__(
        self,
        layers: Sequence[int],
        channels: Sequence[int],
        *,
        num_classes: int,
        in_chans: int,
        head: str = "gap",
        mc_dropout: float = 0.0,
        smoothing: bool = False,
        drop_path_rate: float = 0.0,
    ) -> None:
        super().__init__()
        width, before = channels[0], 0
        self.conv1 = nn.Conv2d(in_chans, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.act1 = nn.ReLU(inplace=True)
        for stage, (depth, out_chans) in enumerate(zip(layers, channels, strict=True), 1):
            strides = [1 if stage == 1 else 2] + [1] * (depth - 1)
            blocks = nn.Sequential()
            for stride in strides:
                rate = drop_path_rate * before / max(1, sum(layers) - 1)
                blocks.append(
                    BasicBlock(width, out_chans, stride, mc_dropout=mc_dropout, drop_path=rate)
                )
                width, before = out_chans, before + 1
            if smoothing:
                blocks.append(SpatialSmoothing())
            self.add_module(f"layer{stage}", blocks)
        self.num_stages = len(layers)
        self.global_pool = pool_of(head, width)
        self.fc = classifier_of(head, width, num_classes)
        self.set_classifier_info(head, num_classes, width, pool="global_pool", last="fc")
        self.feature_info = [  # in timm's words
            {"num_chs": width, "reduction": 2**stage, "module": f"layer{stage + 1}"}
            for stage, width in enumerate(channels)
        ]
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward_features(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d i j"]:
        """The last map."""
        x = self.act1(self.bn1(self.conv1(x)))
        for stage in range(1, self.num_stages + 1):
            x = self.get_submodule(f"layer{stage}")(x)
        return x


@MODELS.register
@checked
def resnet20(
    *,
    num_classes: int = 10,
    in_chans: int = 3,
    head: str = "gap",
    mc_dropout: float = 0.0,
    smoothing: bool = False,
    drop_path_rate: float = 0.0,
) -> ResNet:
    """ResNet-20 for images of 32x32: 0.27 million parameters.

    Args:
        num_classes: logits; 0 for a network that gives features.
        in_chans: channels of an image.
        head: "gap", "gap_mlp" or "attention_pool".
        mc_dropout: probability of dropout between the convolutions of each block.
        smoothing: spatial smoothing at the end of each stage.
        drop_path_rate: stochastic depth of the last block; it grows linearly from 0.

    Source: He et al. (2016), Deep residual learning for image recognition, sec. 4.2.
    """
    return ResNet(
        (3, 3, 3),
        (16, 32, 64),
        num_classes=num_classes,
        in_chans=in_chans,
        head=head,
        mc_dropout=mc_dropout,
        smoothing=smoothing,
        drop_path_rate=drop_path_rate,
    )
