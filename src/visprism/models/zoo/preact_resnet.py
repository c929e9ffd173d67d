"""Pre-activation ResNets (He et al. 2016)."""

from collections.abc import Callable, Sequence

from jaxtyping import Float
from torch import Tensor, nn

from visprism.core.errors import InputError
from visprism.models.layers.classifier import PooledNet
from visprism.models.layers.heads import classifier_of, pool_of
from visprism.models.layers.preactivation import (
    PreActBasic,
    PreActBlock,
    PreActBottleneck,
)
from visprism.models.layers.smoothing import SpatialSmoothing
from visprism.models.zoo_registry import MODELS

WIDTHS = (64, 128, 256, 512)  # of the 3x3 convolutions, by stage
_STEM = 64

# Arguments: stage (from 0), block of the stage (from 0), channels in and out,
# stride, and the probability that its branch is left out.
MakeBlock = Callable[[int, int, int, int, int, float], PreActBlock]


class PreActResNet(PooledNet):
    """A stem, stages of pre-activation blocks that each halve the grid but the first, a head.

    `make_block` makes each block, so that blocks may differ.
    """

    def __init__(
        self,
        depths: Sequence[int],
        make_block: MakeBlock,
        *,
        expansion: int,
        img_size: int,
        num_classes: int,
        in_chans: int,
        head: str,
        smoothing: bool,
        drop_path_rate: float,
        act_layer: Callable[..., nn.Module] = nn.ReLU,
    ) -> None:
        super().__init__()
        if not depths or min(depths) < 1 or len(depths) > len(WIDTHS):
            raise InputError(
                f"depths must have 1 to {len(WIDTHS)} stages of at least one "
                f"block, got {tuple(depths)}"
            )
        small = img_size < 64
        self.conv1 = nn.Conv2d(in_chans, _STEM, 3, padding=1, bias=False)
        self.maxpool = nn.Identity()
        if not small:
            self.conv1 = nn.Conv2d(in_chans, _STEM, 7, stride=2, padding=3, bias=False)
            self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        reduction = 1 if small else 4
        self.feature_info = [{"num_chs": _STEM, "reduction": reduction, "module": "maxpool"}]
        if not small:
            self.feature_info[0] |= {"reduction": 2, "module": "conv1"}
        total, channels, before = sum(depths), _STEM, 0
        for stage, depth in enumerate(depths):
            blocks = nn.Sequential()
            out_chans = WIDTHS[stage] * expansion
            for block in range(depth):
                stride = 2 if stage and not block else 1
                drop = drop_path_rate * (before + block) / max(1, total - 1)
                blocks.append(make_block(stage, block, channels, out_chans, stride, drop))
                channels = out_chans
            before += depth
            if smoothing and stage < len(depths) - 1:
                blocks.append(SpatialSmoothing())
            reduction *= 2 if stage else 1
            name = f"layer{stage + 1}"
            self.add_module(name, blocks)
            info = {"num_chs": channels, "reduction": reduction, "module": name}
            self.feature_info.append(info)
        self.num_stages = len(depths)
        self.norm, self.act = nn.BatchNorm2d(channels), act_layer()
        self.global_pool = pool_of(head, channels)
        self.fc = classifier_of(head, channels, num_classes)
        self.set_classifier_info(head, num_classes, channels, pool="global_pool", last="fc")
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward_features(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d i j"]:
        """The last map, after norm and activation."""
        x = self.maxpool(self.conv1(x))
        for stage in range(1, self.num_stages + 1):
            x = self.get_submodule(f"layer{stage}")(x)
        return self.act(self.norm(x))


def preact_resnet(
    block: type[PreActBasic] | type[PreActBottleneck],
    img_size: int,
    *,
    depths: Sequence[int],
    num_classes: int,
    in_chans: int = 3,
    head: str = "gap",
    mc_dropout: float = 0.0,
    smoothing: bool = False,
    drop_path_rate: float = 0.0,
) -> nn.Module:
    """Norm and activation precede each convolution; shortcuts are identities.

    The stem is a 3x3 convolution for small images, and 7x7 with a max-pool for large ones.

    Args:
        block: the kind of all blocks.
        img_size: of the images that it is made for; the stem depends on it.
        depths: blocks of each stage.
        num_classes: logits; 0 for a network that gives features.
        in_chans: channels of an image.
        head: "gap", "gap_mlp" or "attention_pool".
        mc_dropout: probability of dropout between the last two convolutions of each block.
        smoothing: spatial smoothing at the end of each stage but the last.
        drop_path_rate: stochastic depth of the last block; it grows linearly from 0.

    Source: He et al. (2016), Identity mappings in deep residual networks.
    """

    def make(
        _stage: int, _block: int, in_chans: int, out_chans: int, stride: int, drop: float
    ) -> PreActBlock:
        return block(in_chans, out_chans, stride, drop_path=drop, mc_dropout=mc_dropout)

    return PreActResNet(
        depths,
        make,
        expansion=block.expansion,
        img_size=img_size,
        num_classes=num_classes,
        in_chans=in_chans,
        head=head,
        smoothing=smoothing,
        drop_path_rate=drop_path_rate,
    )


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
