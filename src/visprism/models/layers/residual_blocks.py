"""Residual blocks of convolutions or window attention, and the network of their stages."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from jaxtyping import Float
from timm.layers import DropPath
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, pad

from visprism.models.layers.window_attention import WindowAttention

_TEMPERATURE = 10.0  # Park and Kim's; values far below it pass unchanged


class SpatialSmoothing(nn.Module):
    """The mean over 2x2 pixels of relu(t tanh(x / t)), with t = 10; it has no parameters.

    The last row and column see their nearest pixels twice, so that a constant map keeps its
    value and the grid its size.

    Source: Park and Kim (2022), Blurs behave like ensembles: spatial smoothings to improve
    accuracy, uncertainty, and robustness, sec. 3.
    """

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        """The smoothed map."""
        squashed = (_TEMPERATURE * (x / _TEMPERATURE).tanh()).relu()
        return avg_pool2d(pad(squashed, (0, 1, 0, 1), mode="replicate"), 2, stride=1)


Layer = Callable[..., nn.Module]

# Arguments: stage (from 0), block of the stage (from 0), channels in and out, stride, and the
# probability that its branch is left out.
MakeBlock = Callable[[int, int, int, int, int, float], nn.Module]


def optional(kind: Layer, rate: float) -> nn.Module:
    """A layer with a rate, such as dropout; the identity for 0."""
    return kind(rate) if rate else nn.Identity()


def _pool(stride: int) -> nn.Module:
    """The mean over `stride` pixels each way, and over fewer at a border."""
    if stride == 1:
        return nn.Identity()
    return nn.AvgPool2d(stride, ceil_mode=True, count_include_pad=False)


class PreActBlock(nn.Module, ABC):
    """x + branch(act(norm(x))); where the shape changes, a projection of act(norm(x)) for x.

    A subclass's `_branch` is the layers after act(norm(x)). `drop_path` is the probability that
    the branch is left out in training, `mc_dropout` the rate of dropout inside it.

    Source: He et al. (2016), Identity mappings in deep residual networks, fig. 4e and appendix.
    """

    expansion = 1
    act_layer: Layer = nn.ReLU  # by default

    def __init__(
        self,
        in_chans: int,
        out_chans: int,
        stride: int = 1,
        *,
        act_layer: Layer | None = None,
        norm_layer: Layer = nn.BatchNorm2d,
        drop_path: float = 0.0,
        mc_dropout: float = 0.0,
        **rest: Any,
    ) -> None:
        super().__init__()
        act_layer = act_layer or self.act_layer
        self.norm1 = norm_layer(in_chans)
        self.act1 = act_layer()
        self.downsample = nn.Identity()
        if stride != 1 or in_chans != out_chans:
            self.downsample = nn.Conv2d(in_chans, out_chans, 1, stride, bias=False)
        self.drop_path = optional(DropPath, drop_path)
        self._make_branch(in_chans, out_chans, stride, act_layer, norm_layer, **rest)
        self.dropout = optional(nn.Dropout, mc_dropout)

    @abstractmethod
    def _make_branch(
        self, in_chans: int, out_chans: int, stride: int, act_layer: Layer, norm_layer: Layer
    ) -> None:
        """Make the layers of the branch, with random weights."""

    @abstractmethod
    def _branch(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d i j"]:
        """What the block adds, from its normed and activated input."""

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d i j"]:
        """The shortcut plus the branch."""
        active = self.act1(self.norm1(x))
        projects = not isinstance(self.downsample, nn.Identity)
        shortcut = self.downsample(active) if projects else x
        return shortcut + self.drop_path(self._branch(active))


class PreActBasic(PreActBlock):
    """Two 3x3 convolutions with a shortcut."""

    def _make_branch(
        self, in_chans: int, out_chans: int, stride: int, act_layer: Layer, norm_layer: Layer
    ) -> None:
        self.conv1 = nn.Conv2d(in_chans, out_chans, 3, stride, padding=1, bias=False)
        self.norm2 = norm_layer(out_chans)
        self.act2 = act_layer()
        self.conv2 = nn.Conv2d(out_chans, out_chans, 3, padding=1, bias=False)

    def _branch(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d i j"]:
        return self.conv2(self.act2(self.norm2(self.dropout(self.conv1(x)))))


class PreActBottleneck(PreActBlock):
    """1x1, 3x3 and 1x1 convolutions with a shortcut, the 3x3 on a quarter of the channels."""

    expansion = 4

    def _make_branch(
        self, in_chans: int, out_chans: int, stride: int, act_layer: Layer, norm_layer: Layer
    ) -> None:
        width = out_chans // self.expansion
        self.conv1 = nn.Conv2d(in_chans, width, 1, bias=False)
        self.norm2 = norm_layer(width)
        self.act2 = act_layer()
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.norm3 = norm_layer(width)
        self.act3 = act_layer()
        self.conv3 = nn.Conv2d(width, out_chans, 1, bias=False)

    def _branch(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d i j"]:
        x = self.dropout(self.conv2(self.act2(self.norm2(self.conv1(x)))))
        return self.conv3(self.act3(self.norm3(x)))


class MSABlock(PreActBlock):
    """Norm, activation, 1x1 convolution, norm and window attention, with a shortcut.

    The 1x1 convolution reduces the map to `width` channels, by default a quarter of
    `out_chans`. The attention's output layer expands them. With a stride, the block averages
    the attention's output, as BoTNet does, so that it may be the first of a stage. Other
    arguments go to `WindowAttention`.

    Source: Park and Kim (2022), How do vision transformers work?, sec. 4 and fig. 10; the
    stride: Srinivas et al. (2021), Bottleneck transformers, sec. 3.
    """

    act_layer = nn.GELU

    def _make_branch(
        self,
        in_chans: int,
        out_chans: int,
        stride: int,
        act_layer: Layer,
        norm_layer: Layer,
        *,
        width: int | None = None,
        **attention: Any,
    ) -> None:
        width = width or out_chans // 4
        self.conv1 = nn.Conv2d(in_chans, width, 1, bias=False)
        self.norm2 = norm_layer(width)
        self.attn = WindowAttention(width, out_chans, **attention)
        self.pool = _pool(stride)

    def _branch(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d i j"]:
        return self.dropout(self.pool(self.attn(self.norm2(self.conv1(x)))))


class PostActMSABlock(nn.Module):
    """`MSABlock` for a CNN whose norm and activation follow each convolution.

    act(shortcut + norm(attention(act(norm(conv(x)))))), with norm(conv(x)) for the shortcut
    where the shape changes.

    Source: Park and Kim (2022), How do vision transformers work?, sec. 4, in the order of He et
    al. (2016), Deep residual learning for image recognition.
    """

    def __init__(
        self,
        in_chans: int,
        out_chans: int,
        stride: int = 1,
        *,
        width: int | None = None,
        act_layer: Layer = nn.ReLU,
        norm_layer: Layer = nn.BatchNorm2d,
        drop_path: float = 0.0,
        mc_dropout: float = 0.0,
        **attention: Any,
    ) -> None:
        super().__init__()
        width = width or out_chans // 4
        self.conv1 = nn.Conv2d(in_chans, width, 1, bias=False)
        self.norm1 = norm_layer(width)
        self.act1 = act_layer()
        self.attn = WindowAttention(width, out_chans, **attention)
        self.pool = _pool(stride)
        self.dropout = optional(nn.Dropout, mc_dropout)
        self.norm2 = norm_layer(out_chans)
        self.downsample = projection(in_chans, out_chans, stride, norm_layer)
        self.drop_path = optional(DropPath, drop_path)
        self.act2 = act_layer()

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d i j"]:
        """The shortcut plus the branch, activated."""
        branch = self.attn(self.act1(self.norm1(self.conv1(x))))
        branch = self.norm2(self.dropout(self.pool(branch)))
        return self.act2(self.downsample(x) + self.drop_path(branch))


def projection(
    in_chans: int, out_chans: int, stride: int, norm_layer: Layer = nn.BatchNorm2d
) -> nn.Module:
    """The shortcut of a block: a normed 1x1 convolution where the shape changes."""
    if stride == 1 and in_chans == out_chans:
        return nn.Identity()
    conv = nn.Conv2d(in_chans, out_chans, 1, stride, bias=False)
    return nn.Sequential(conv, norm_layer(out_chans))


class MeanPool(nn.Module):
    """The mean over the positions of a map: global average pooling (GAP)."""

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c"]:
        """One vector for each image."""
        return x.mean((2, 3))


def linear(channels: int, num_classes: int) -> nn.Module:
    """The classifier of a vector; the identity without classes."""
    return nn.Linear(channels, num_classes) if num_classes else nn.Identity()


class StagedNet(nn.Module, ABC):
    """Stages of blocks, GAP and a classifier; each stage but the first halves the grid."""

    num_stages: int

    @abstractmethod
    def forward_features(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d i j"]:
        """The last map."""

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b ..."]:
        """Logits, or features without classes."""
        return self.fc(self.global_pool(self.forward_features(x)))

    def make_stages(
        self, depths: Sequence[int], widths: Sequence[int], make_block: MakeBlock,
        *, channels: int, drop_path_rate: float, smoothed: int,
    ) -> int:  # fmt: skip
        """Make ``layer1`` ... from blocks, and return the channels of the last map.

        Stochastic depth grows linearly from 0 to `drop_path_rate`. The first `smoothed` stages
        end in spatial smoothing.
        """
        before = 0
        for stage, depth in enumerate(depths):
            blocks = nn.Sequential()
            for block in range(depth):
                stride = 2 if stage and not block else 1
                drop = drop_path_rate * before / max(1, sum(depths) - 1)
                blocks.append(make_block(stage, block, channels, widths[stage], stride, drop))
                channels, before = widths[stage], before + 1
            if stage < smoothed:
                blocks.append(SpatialSmoothing())
            self.add_module(f"layer{stage + 1}", blocks)
        self.num_stages = len(depths)
        return channels

    def make_head(self, channels: int, num_classes: int) -> None:
        """Make the classifier, and draw the weights of all convolutions (He et al. 2015)."""
        self.global_pool = MeanPool()
        self.fc = linear(channels, num_classes)
        self.num_classes = num_classes
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward_stages(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d i j"]:
        """The map of the last stage."""
        for stage in range(1, self.num_stages + 1):
            x = self.get_submodule(f"layer{stage}")(x)
        return x
