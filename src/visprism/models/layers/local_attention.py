"""Local attention: multi-head self-attention of each token with its neighbors on the grid."""

from typing import Literal

import torch
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention

from visprism.core.errors import InputError
from visprism.models.layers.window_attention import head_width

# Up to so many tokens all pairs, most of them masked, are faster than neighborhoods gathered
# (benchmarks/attention.py): nothing is copied.
_ALL_PAIRS = 400
_TILE = 8  # side of the square of queries that share their keys, on larger grids


class LocalAttention(nn.Module):
    """Multi-head self-attention of each token with the k x k tokens around it.

    For a token at place i of the grid, in each head, with queries, keys and values q, k, v of d
    channels from one linear map of the input,

        out_i = sum over j near i of softmax_j(q_i . k_j / sqrt(d)) v_j

    and a linear map of all heads' `out` gives the output. Tokens outside the image are no keys:
    at a border there are fewer neighbors, and the softmax is over those. With "global" every
    token is near, which is a ViT's attention.

    Costs two products of d multiply-accumulates for each pair of tokens on grids of up to 400
    tokens, and for each token and each of (7 + k)^2 around it on larger ones.

    Source: Yang et al. (2019), Convolutional self-attention networks, in two dimensions; Park
    and Kim (2022), How do vision transformers work?, fig. 5.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        kernel: int | Literal["global"] | None = 3,
        head_dim: int | None = None,
        qkv_bias: bool = False,
        proj_drop: float = 0.0,
    ) -> None:
        """Make a layer with random weights.

        Args:
            dim: channels of the input and of the output.
            num_heads: of the attention.
            kernel: side of the neighborhood in tokens, odd; "global" (or None) for all tokens.
            head_dim: channels of a head; None shares `dim` among them.
            qkv_bias: whether queries, keys and values have a bias.
            proj_drop: dropout behind the last linear map.

        Raises:
            InputError: if the heads do not fit, or the kernel has no center.
        """
        super().__init__()
        kernel = None if kernel == "global" else kernel
        if kernel is not None and (kernel < 1 or kernel % 2 == 0):
            raise InputError(
                f"kernel must be an odd number of tokens or 'global', got {kernel}"
            )
        width = num_heads * head_width(dim, num_heads, head_dim)
        self.num_heads, self.kernel = num_heads, kernel
        self.qkv = nn.Linear(dim, 3 * width, bias=qkv_bias)
        self.proj = nn.Linear(width, dim)
        self.proj_drop = nn.Dropout(proj_drop)

    def forward(
        self,
        x: Float[Tensor, "b h w c"],
        attn_mask: None = None,  # noqa: ARG002 (timm's blocks hand both on)
        is_causal: bool = False,  # noqa: ARG002, FBT001, FBT002
    ) -> Float[Tensor, "b h w c"]:
        """The output at each token, from the tokens around it."""
        height, width = x.shape[1:3]
        qkv = self.qkv(x)
        if self.kernel is None or height * width <= _ALL_PAIRS:
            out = self._among_all(qkv, height, width)
        else:
            out = self._by_tiles(qkv, self.kernel, height, width)
        return self.proj_drop(self.proj(out))

    def _among_all(
        self, qkv: Float[Tensor, "b h w d"], height: int, width: int
    ) -> Float[Tensor, "b h w e"]:
        """Every token with all, of which those that are not near are masked."""
        q, k, v = rearrange(
            qkv, "b h w (three g d) -> three b g (h w) d", three=3, g=self.num_heads
        )
        near = None
        if self.kernel is not None:
            reach = self.kernel // 2
            rows, columns = (
                _seen(length, reach, length)[:, :, reach : reach + length]
                for length in (height, width)
            )
            near = _pairs(rows, columns)[0].to(q.device)
        out = scaled_dot_product_attention(q, k, v, attn_mask=near)
        return rearrange(out, "b g (h w) d -> b h w (g d)", h=height)

    def _by_tiles(
        self, qkv: Float[Tensor, "b h w d"], kernel: int, height: int, width: int
    ) -> Float[Tensor, "b h w e"]:
        """The tokens of a tile with those in it and around it."""
        reach, span = kernel // 2, _TILE + 2 * (kernel // 2)
        qkv = pad(qkv, (0, 0, 0, -width % _TILE, 0, -height % _TILE))
        q, kv = qkv.split([qkv.shape[-1] // 3, 2 * qkv.shape[-1] // 3], dim=-1)
        sizes = {"p": _TILE, "q": _TILE, "g": self.num_heads}
        q = rearrange(q, "b (i p) (j q) (g d) -> (b i j) g (p q) d", **sizes)
        kv = pad(kv, (0, 0, reach, reach, reach, reach))
        kv = kv.unfold(1, span, _TILE).unfold(2, span, _TILE)
        k, v = rearrange(
            kv, "b i j (two g d) s t -> two (b i j) g (s t) d", two=2, g=self.num_heads
        )
        near = _pairs(_seen(height, reach, _TILE), _seen(width, reach, _TILE))
        near = near[:, None].repeat(len(qkv), 1, 1, 1).to(q.device)
        out = scaled_dot_product_attention(q, k, v, attn_mask=near)
        tiles = {"i": qkv.shape[1] // _TILE, "j": qkv.shape[2] // _TILE, "p": _TILE}
        out = rearrange(out, "(b i j) g (p q) d -> b (i p) (j q) (g d)", **tiles)
        return out[:, :height, :width]


def _seen(length: int, reach: int, tile: int) -> Bool[Tensor, "n tile span"]:
    """Along an axis: which of the places around a tile each place in it sees.

    A tile's keys begin `reach` places before it. A place beyond the axis, which fills the last
    tile, sees what the last place sees, so that no place sees nothing.
    """
    places = torch.arange(length + -length % tile).view(-1, tile)
    keys = places[:, :1] - reach + torch.arange(tile + 2 * reach)
    distance = keys[:, None, :] - places.clamp(max=length - 1)[:, :, None]
    inside = (keys >= 0) & (keys < length)
    return (distance.abs() <= reach) & inside[:, None, :]


def _pairs(
    rows: Bool[Tensor, "i p s"], columns: Bool[Tensor, "j q t"]
) -> Bool[Tensor, "ij pq st"]:
    """Which keys of the grid each query sees, for every tile."""
    both = rows[:, None, :, None, :, None] & columns[None, :, None, :, None, :]
    return rearrange(both, "i j p q s t -> (i j) (p q) (s t)")
