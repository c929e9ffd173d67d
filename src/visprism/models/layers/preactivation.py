"""Pre-activation residual blocks: norm and activation stand before each convolution."""

from abc import ABC, abstractmethod
from collections.abc import Callable

from jaxtyping import Float
from timm.layers import DropPath
from torch import Tensor, nn

Layer = Callable[..., nn.Module]


class PreActBlock(nn.Module, ABC):
    """x + branch(act(norm(x))); where the shape changes, a projection of act(norm(x)) for x.

    A subclass's `branch` is the layers from there on.

    Source: He et al. (2016), Identity mappings in deep residual networks, fig. 4e and appendix.
    """

    def __init__(
        self,
        in_chans: int,
        out_chans: int,
        stride: int = 1,
        *,
        act_layer: Layer = nn.ReLU,
        norm_layer: Layer = nn.BatchNorm2d,
        drop_path: float = 0.0,
    ) -> None:
        super().__init__()
        self.norm1 = norm_layer(in_chans)
        self.act1 = act_layer()
        self.downsample = nn.Identity()
        if stride != 1 or in_chans != out_chans:
            self.downsample = nn.Conv2d(in_chans, out_chans, 1, stride, bias=False)
        self.drop_path = DropPath(drop_path) if drop_path else nn.Identity()

    @abstractmethod
    def branch(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d i j"]:
        """What the block adds, from its normed and activated input."""

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d i j"]:
        """The shortcut plus the branch."""
        active = self.act1(self.norm1(x))
        projects = not isinstance(self.downsample, nn.Identity)
        shortcut = self.downsample(active) if projects else x
        return shortcut + self.drop_path(self.branch(active))


class PreActBasic(PreActBlock):
    """Two 3x3 convolutions beside a shortcut."""

    expansion = 1

    def __init__(
        self,
        in_chans: int,
        out_chans: int,
        stride: int = 1,
        *,
        act_layer: Layer = nn.ReLU,
        norm_layer: Layer = nn.BatchNorm2d,
        drop_path: float = 0.0,
        mc_dropout: float = 0.0,
    ) -> None:
        layers = {"act_layer": act_layer, "norm_layer": norm_layer}
        super().__init__(in_chans, out_chans, stride, drop_path=drop_path, **layers)
        self.conv1 = nn.Conv2d(in_chans, out_chans, 3, stride, padding=1, bias=False)
        self.dropout = nn.Dropout(mc_dropout) if mc_dropout else nn.Identity()
        self.norm2 = norm_layer(out_chans)
        self.act2 = act_layer()
        self.conv2 = nn.Conv2d(out_chans, out_chans, 3, padding=1, bias=False)

    def branch(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d i j"]:
        """Two convolutions with norm and activation between."""
        return self.conv2(self.act2(self.norm2(self.dropout(self.conv1(x)))))


class PreActBottleneck(PreActBlock):
    """1x1, 3x3 and 1x1 convolutions beside a shortcut, the 3x3 on a quarter of the channels."""

    expansion = 4

    def __init__(
        self,
        in_chans: int,
        out_chans: int,
        stride: int = 1,
        *,
        act_layer: Layer = nn.ReLU,
        norm_layer: Layer = nn.BatchNorm2d,
        drop_path: float = 0.0,
        mc_dropout: float = 0.0,
    ) -> None:
        layers = {"act_layer": act_layer, "norm_layer": norm_layer}
        super().__init__(in_chans, out_chans, stride, drop_path=drop_path, **layers)
        width = out_chans // self.expansion
        self.conv1 = nn.Conv2d(in_chans, width, 1, bias=False)
        self.norm2 = norm_layer(width)
        self.act2 = act_layer()
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.dropout = nn.Dropout(mc_dropout) if mc_dropout else nn.Identity()
        self.norm3 = norm_layer(width)
        self.act3 = act_layer()
        self.conv3 = nn.Conv2d(width, out_chans, 1, bias=False)

    def branch(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d i j"]:
        """Three convolutions with norm and activation between."""
        x = self.dropout(self.conv2(self.act2(self.norm2(self.conv1(x)))))
        return self.conv3(self.act3(self.norm3(x)))
