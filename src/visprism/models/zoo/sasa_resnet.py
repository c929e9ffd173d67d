"""Stand-alone self-attention ResNets (Ramachandran et al. 2019)."""

from collections.abc import Sequence
from typing import Any

import torch
from einops import rearrange, repeat
from jaxtyping import Bool, Float
from timm.models.resnet import Bottleneck
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention

from visprism.core.errors import InputError
from visprism.models.zoo.resnet import resnet
from visprism.models.zoo_registry import MODELS, extends


class NeighborhoodAttention(nn.Module):
    """Multi-head self-attention of each pixel with the k x k pixels around it.

    For the pixel i in each head, with queries, keys and values of d channels from 1x1
    convolutions, and an embedding r of the key's row and column relative to the query's, of d/2
    channels each,

        out_i = sum over j near i of softmax_j(q_i . (k_j + r_{j-i})) v_j,

    without a scale, as in the paper. Pixels outside the image are no keys. With a stride what
    the attention gives is averaged over as many pixels, as in the paper. Every pixel's
    neighbors are gathered: k^2 times the keys and values in memory.

    Source: Ramachandran et al. (2019), Stand-alone self-attention in vision models, eq. 3.
    """

    def __init__(
        self, in_chans: int, out_chans: int, stride: int = 1, *, kernel: int, num_heads: int
    ) -> None:
        super().__init__()
        if kernel < 1 or kernel % 2 == 0:
            raise InputError(f"kernel must be an odd number of pixels, got {kernel}")
        if num_heads < 1 or out_chans % (2 * num_heads):
            raise InputError(
                f"num_heads must divide half of the {out_chans} channels (rows "
                "and columns have embeddings of half a head each), got "
                f"{num_heads}. Choose a divisor of {out_chans // 2}."
            )
        half = out_chans // num_heads // 2
        self.kernel, self.num_heads = kernel, num_heads
        self.qkv = nn.Conv2d(in_chans, 3 * out_chans, 1, bias=False)
        self.rows = nn.Parameter(torch.randn(num_heads, kernel, half))
        self.columns = nn.Parameter(torch.randn(num_heads, kernel, half))
        self.pool = nn.Identity()
        if stride != 1:
            self.pool = nn.AvgPool2d(stride, ceil_mode=True, count_include_pad=False)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d i j"]:
        """The output at each pixel, from those around it."""
        (height, width), g = x.shape[2:], self.num_heads
        q, k, v = self.qkv(x).chunk(3, dim=1)
        # Contiguous in any memory format of the convolution: fast attention needs it, and
        # torch's compiler does not see that queries of one image are laid out otherwise.
        queries = rearrange(q, "b (g d) h w -> (b h w) g 1 d", g=g).contiguous()
        near = "b (g d) h w p q -> (b h w) g (p q) d"
        keys, values = (rearrange(self._around(t), near, g=g) for t in (k, v))
        rows = repeat(self.rows, "g p d -> g (p q) d", q=self.kernel)
        columns = repeat(self.columns, "g q d -> g (p q) d", p=self.kernel)
        keys = keys + torch.cat([rows, columns], dim=-1)
        inside = self._inside(height, width).to(x.device).repeat(len(x), 1)[:, None, None]
        out = scaled_dot_product_attention(queries, keys, values, attn_mask=inside, scale=1.0)
        return self.pool(rearrange(out, "(b h w) g 1 d -> b (g d) h w", h=height, w=width))

    def _around(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w p q"]:
        reach = self.kernel // 2
        padded = pad(x, (reach,) * 4)
        return padded.unfold(2, self.kernel, 1).unfold(3, self.kernel, 1)

    def _inside(self, height: int, width: int) -> Bool[Tensor, "hw pq"]:
        """Whether a pixel's neighbors are pixels of the image."""
        image = torch.ones(1, 1, height, width)
        return rearrange(self._around(image), "1 1 h w p q -> (h w) (p q)") > 0


@extends(resnet)
def sasa_resnet(
    depths: Sequence[int], img_size: int, *, kernel: int = 7, num_heads: int = 8, **options: Any
) -> nn.Module:
    """A ResNet with local self-attention instead of every 3x3 convolution of its blocks.

    The stem is a ResNet's (the paper's "conv stem").

    Source: Ramachandran et al. (2019), Stand-alone self-attention in vision models.
    """
    model = resnet(depths, Bottleneck, img_size, **options)
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
