"""Window attention: multi-head self-attention among the pixels of each window of a map."""

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention

from visprism.core.errors import InputError


def head_width(width: int, num_heads: int, head_dim: int | None) -> int:
    """Channels of each head: `head_dim`, or an equal share of `width`."""
    if num_heads < 1:
        raise InputError(f"num_heads must be at least 1, got {num_heads}")
    if head_dim is not None and head_dim < 1:
        raise InputError(f"head_dim must be at least 1, got {head_dim}")
    if head_dim is None and width % num_heads:
        raise InputError(
            f"num_heads must divide the {width} channels, got {num_heads}. "
            f"Choose a divisor of {width}, or set head_dim."
        )
    return width // num_heads if head_dim is None else head_dim


class WindowAttention(nn.Module):
    """Multi-head self-attention inside windows, with a bias for each relative position.

    In every window of p x p pixels and every head, with queries, keys and values q, k, v of d
    channels from one linear map of the input,

        out = softmax(q k^T / sqrt(d) + B) v,
        B[i, j] = table[row_j - row_i, column_j - column_i]

    and a linear map of all heads' `out` gives the output. Where windows do not divide the map,
    the last ones are smaller, and none is larger than the map. With `shared_bias` one table
    serves all heads, as in the code of Park and Kim. Costs two products of p^2 d
    multiply-accumulates for each pixel and head, in addition to the linear maps.

    Source: Liu et al. (2021), Swin Transformer, sec. 3.2, eq. 4; Park and Kim (2022), How do
    vision transformers work?, sec. 4, for its place in a CNN.
    """

    def __init__(
        self,
        in_chans: int,
        out_chans: int | None = None,
        *,
        num_heads: int,
        head_dim: int | None = 64,
        window: int = 7,
        qkv_bias: bool = False,
        shared_bias: bool = False,
    ) -> None:
        super().__init__()
        if window < 1:
            raise InputError(
                f"window must be at least 1, in positions of the feature map, got {window}"
            )
        width = head_width(in_chans, num_heads, head_dim)
        self.num_heads, self.window = num_heads, window
        self.qkv = nn.Linear(in_chans, 3 * num_heads * width, bias=qkv_bias)
        distances = 2 * window - 1
        tables = 1 if shared_bias else num_heads
        self.relative_bias = nn.Parameter(torch.empty(tables, distances, distances))
        nn.init.trunc_normal_(self.relative_bias, std=0.02)  # as in Swin
        self.proj = nn.Linear(num_heads * width, out_chans or in_chans)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d h w"]:
        """The output at each pixel, from the pixels of its window."""
        batch, _, height, width = x.shape
        # One window of the map's size sees what a larger one would.
        p = min(self.window, max(height, width))
        x = pad(x, (0, -width % p, 0, -height % p))
        i, j = x.shape[2] // p, x.shape[3] // p
        tokens = rearrange(x, "b c (i p) (j q) -> (b i j) (p q) c", p=p, q=p)
        q, k, v = rearrange(
            self.qkv(tokens), "n t (three g d) -> three n g t d", three=3, g=self.num_heads
        )
        bias = self._bias(p).to(q.dtype)
        if (height, width) != (i * p, j * p):
            # Padding sees only padding, so that no place has nothing to look at.
            padding = pad(
                torch.zeros(height, width), (0, j * p - width, 0, i * p - height), value=1
            )
            padding = rearrange(padding, "(i p) (j q) -> (i j) 1 (p q)", p=p, q=p).to(x.device)
            apart = padding[..., None] != padding[:, :, None]
            alone = bias.masked_fill(apart, -torch.inf)  # (windows, heads, t, t)
            bias = alone.expand(batch, *alone.shape).flatten(0, 1)
        out = scaled_dot_product_attention(q, k, v, attn_mask=bias)
        out = self.proj(rearrange(out, "n g t d -> n t (g d)"))
        x = rearrange(out, "(b i j) (p q) c -> b c (i p) (j q)", i=i, j=j, p=p, q=p)
        return x[:, :, :height, :width]

    def _bias(self, p: int) -> Float[Tensor, "g t t"]:
        """The table's entries for each two of the p x p places of a window, for each head."""
        place = torch.arange(p, device=self.relative_bias.device)
        offset = place[None, :] - place[:, None] + self.window - 1  # [query, key]
        entries = self.relative_bias[:, offset[:, None, :, None], offset[None, :, None, :]]
        table = entries.flatten(3).flatten(1, 2)
        return table.expand(self.num_heads, -1, -1)
