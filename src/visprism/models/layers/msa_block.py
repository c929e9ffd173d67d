"""MSA blocks: residual blocks of a CNN with window attention instead of a convolution."""

from typing import Any

from jaxtyping import Float
from timm.layers import DropPath
from torch import Tensor, nn

from visprism.models.layers.preactivation import Layer, PreActBlock
from visprism.models.layers.window_attention import WindowAttention


def _pool(stride: int) -> nn.Module:
    """The mean over `stride` pixels each way; the last ones may be fewer, as a kernel's are."""
    if stride == 1:
        return nn.Identity()
    return nn.AvgPool2d(stride, ceil_mode=True, count_include_pad=False)


class MSABlock(PreActBlock):
    """Norm, activation, 1x1 convolution, norm and window attention, beside a shortcut.

    The 1x1 convolution narrows to `width` channels, and the attention's own output layer widens
    again. With a stride the attention sees the map as it comes and what it gives is averaged,
    as in BoTNet, so that the block may be the first of a stage.

    Source: Park and Kim (2022), How do vision transformers work?, sec. 4 and fig. 10; the
    stride: Srinivas et al. (2021), Bottleneck transformers, sec. 3.
    """

    def __init__(
        self,
        in_chans: int,
        out_chans: int,
        stride: int = 1,
        *,
        width: int | None = None,
        act_layer: Layer = nn.GELU,
        norm_layer: Layer = nn.BatchNorm2d,
        drop_path: float = 0.0,
        mc_dropout: float = 0.0,
        **attention: Any,
    ) -> None:
        """Make a block with random weights.

        Args:
            in_chans: of the feature map.
            out_chans: of the output.
            stride: the grid of the output is so much smaller.
            width: channels that the attention reads; a quarter of `out_chans` if not named.
            act_layer: makes the activation.
            norm_layer: makes a norm for a number of channels.
            drop_path: probability that the branch is left out in training.
            mc_dropout: probability that a number of the attention's output is zeroed.
            attention: heads, their width, window and bias of the `WindowAttention`.
        """
        layers = {"act_layer": act_layer, "norm_layer": norm_layer}
        super().__init__(in_chans, out_chans, stride, drop_path=drop_path, **layers)
        width = width or out_chans // 4
        self.conv1 = nn.Conv2d(in_chans, width, 1, bias=False)
        self.norm2 = norm_layer(width)
        self.attn = WindowAttention(width, out_chans, **attention)
        self.pool = _pool(stride)
        self.dropout = nn.Dropout(mc_dropout) if mc_dropout else nn.Identity()

    def branch(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d i j"]:
        """Attention on a narrower map."""
        return self.dropout(self.pool(self.attn(self.norm2(self.conv1(x)))))


class PostActMSABlock(nn.Module):
    """The same for a CNN whose norm and activation follow each convolution.

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
        """Make a block with random weights; the arguments are those of `MSABlock`."""
        super().__init__()
        width = width or out_chans // 4
        self.conv1 = nn.Conv2d(in_chans, width, 1, bias=False)
        self.norm1 = norm_layer(width)
        self.act1 = act_layer()
        self.attn = WindowAttention(width, out_chans, **attention)
        self.pool = _pool(stride)
        self.dropout = nn.Dropout(mc_dropout) if mc_dropout else nn.Identity()
        self.norm2 = norm_layer(out_chans)
        self.downsample = nn.Identity()
        if stride != 1 or in_chans != out_chans:
            self.downsample = nn.Sequential(
                nn.Conv2d(in_chans, out_chans, 1, stride, bias=False), norm_layer(out_chans)
            )
        self.drop_path = DropPath(drop_path) if drop_path else nn.Identity()
        self.act2 = act_layer()

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d i j"]:
        """The shortcut plus the branch, activated."""
        branch = self.attn(self.act1(self.norm1(self.conv1(x))))
        branch = self.norm2(self.dropout(self.pool(branch)))
        return self.act2(self.downsample(x) + self.drop_path(branch))
